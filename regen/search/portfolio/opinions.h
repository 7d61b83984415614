// The last rounds of the portfolio. What is left of the effort on a small graph goes to planners
// that search or round, each on the graph as it stands: so that none of them would have been the
// better choice, however the effort was divided among orders and implementations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "regen/search/planner.h"

namespace regen::search {

// The fraction of an effort that is kept for these rounds.
double fraction_for_opinions(const Graph& graph);

// The better of the proposal and of what these planners propose.
Result<Proposal> with_opinions(const Problem& problem, Proposal proposal, Effort& effort);

// The same where each of these planners is asked once, with this work: what it would find alone.
Result<Proposal> with_opinions_of(std::int64_t work, const Problem& problem, Proposal proposal,
                                  Effort& effort);

// Planners that with_opinions_of() asks, at most.
std::size_t number_of_opinions(const Graph& graph);

}  // namespace regen::search
