// Which of two plans is better: one rule for every planner, service and search.
#pragma once

#include "regen/search/judge.h"

namespace regen::search {

// A plan within the problem's limits is better than one that is not. Of two within a budget the
// cheaper one is, then the smaller; without a budget, and of two that break the limits, the smaller
// one, then the cheaper.
bool better(const Problem& problem, const Simulation& a, const Simulation& b);

// Within the limits and cheaper by more than rounding.
bool clearly_better(const Problem& problem, const Simulation& a, const Simulation& b);

// The lower bound that needs no search: every op once, each in its cheapest variant.
double least_cost(const Graph& graph);

}  // namespace regen::search
