// The best recompute+swap plan, with a proven bound: local search over reuse intervals, the
// relaxation of the transfer model, and for small graphs a search over all step lists that ends
// with the optimum. Without a plan to start from, quick planners are asked first.
#pragma once

#include "regen/search/planner.h"

namespace regen::search {

// S is a matrix of ops by values: larger graphs are not taken.
inline constexpr std::size_t kMostSwapOps = 20'000;

// Exact, anytime. The problem must have a budget.
Proposal solve_swaps(const Problem& problem, Effort& effort);

// One relaxation, rounded at several thresholds; schedules over the budget are repaired
// (published/str/str.cpp).
Proposal round_swaps(const Problem& problem, Effort& effort);

}  // namespace regen::search
