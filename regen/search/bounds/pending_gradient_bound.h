// The least memory that waiting gradients force on every schedule, whatever it re-runs and costs.
//
// What an op reads and makes is not all that must be in memory while it runs: others wait for
// their readers, and making them again later may need just as much room. To see how much, the
// problem is relaxed to a game with few pieces. Forward values can be had at any moment for
// nothing, and count only while an op reads or makes them. What the other ops make counts as long
// as it waits for a reader, and is made again only by running its op with all that this op reads.
// First runs keep their order; re-runs come in any order, as often as one likes.
#pragma once

#include "regen/base/limit.h"
#include "regen/search/exact/stage_problem.h"

namespace regen::search {

// Without the fixed bytes. Exact for the game, unless the effort is spent or the game is too large;
// then a smaller bound, which holds as well.
Bytes pending_gradient_bound(const StageProblem& stages, Effort& effort);

}  // namespace regen::search
