// The pending-gradient bound: the least memory that gradients that wait for their readers force on
// every schedule, whatever it re-runs and costs.
//
// While an op runs, more must be in memory than what it reads and makes: other gradients wait for
// their readers, and recomputing them later may need as much room. The bound is the optimum of a
// relaxed problem. There, forward values are available at any moment at no cost, and count only
// while an op reads or makes them. Values of all other ops count as long as they wait for a reader,
// and are recomputed only by running their op with everything that it reads. First runs keep their
// order; re-runs come in any order and number.
#pragma once

#include "regen/base/limit.h"
#include "regen/search/exact/stage_problem.h"

namespace regen::search {

// Without the fixed bytes. The optimum of the relaxed problem; a smaller, valid bound if the effort
// is spent or the problem is too large.
Bytes pending_gradient_bound(const StageProblem& stages, Effort& effort);

}  // namespace regen::search
