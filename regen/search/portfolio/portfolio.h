// What `auto` does for a graph as it stands: each op in one way, first runs in the order of the
// graph as far as the proposers keep it. Quick planners and a search over gaps and movement
// propose; what they find is improved until the time is up; a program over what must be dropped
// says how much better any plan could be.
#pragma once

#include "regen/search/planner.h"

namespace regen::search {

// The bound is about `original`, of which the problem's graph may be a view with one way for each
// op. `unlimited`: the limits of the effort are our own, not the caller's, and small graphs may
// take longer.
Result<Proposal> plan_in_order(const Problem& problem, const Graph& original, bool unlimited,
                               Effort& effort);

// Not every planner asks whether gradients may be made twice, or keeps the order where it must.
bool allowed(const Problem& problem, const Plan& plan);

// About plans in every order; 0 where the graph is too large. With a share of what is left of the
// effort, or a little time if that is nothing.
double bound_of_every_order(const Graph& graph, const Problem& problem, double share,
                            Effort& effort);

// Of every op once, each in its cheapest way.
double least_cost(const Graph& graph);

}  // namespace regen::search
