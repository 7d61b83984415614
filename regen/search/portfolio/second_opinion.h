// What is left of an effort on a small graph goes to the planners that search or round, each on the
// graph as it stands: so that none of them would have been the better choice, however `auto` has
// shared its time among orders and implementations.
#pragma once

#include "regen/search/planner.h"

namespace regen::search {

// Of an effort, what should be left for this.
double share_for_second_opinions(const Graph& graph);

// The better of the proposal and what the others say.
Result<Proposal> with_second_opinions(const Problem& problem, Proposal proposal, Effort& effort);

}  // namespace regen::search
