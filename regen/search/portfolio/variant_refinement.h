// Faster ways to run the ops of a finished plan, wherever there is room for their workspace: every
// run of an op may have a way of its own, and the workspace of one run does not affect the others,
// so that the choice is the best one for these steps.
#pragma once

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/simulate/simulate.h"

namespace regen::search {

// `budget` counts every byte. The plan must have a meaning (simulate()); one over the budget comes
// back as it is wherever it is over.
Result<Plan> with_fastest_variants(const Graph& graph, Plan plan, const Link& link, Bytes budget);

}  // namespace regen::search
