// The last rounds of the portfolio. What is left of the effort on a small graph goes to planners
// that search or round, each on the graph as it stands: so that none of them would have been the
// better choice, however the effort was divided among orders and implementations.
#pragma once

#include "regen/search/planner.h"

namespace regen::search {

// The fraction of an effort that is kept for these rounds.
double fraction_for_opinions(const Graph& graph);

// The better of the proposal and of what these planners propose.
Result<Proposal> with_opinions(const Problem& problem, Proposal proposal, Effort& effort);

}  // namespace regen::search
