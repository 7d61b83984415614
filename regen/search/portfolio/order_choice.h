// Whether another order of first runs than the graph's is worth planning for.
#pragma once

#include <optional>

#include "regen/search/planner.h"
#include "regen/search/portfolio/op_order.h"

namespace regen::search {

// The order for which a quick plan is clearly cheaper than for that of the graph, or fits where
// that has none; nothing where there is no such order. The problem must have a budget.
std::optional<OrderView> promising_order(const Problem& problem, Effort& effort);

}  // namespace regen::search
