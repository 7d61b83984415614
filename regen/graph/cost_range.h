// Costs that can be added up, squared and divided by each other, over any schedule of a graph, with a
// finite number as the answer. A graph may hold other costs, and keeps every bit of them in files;
// whatever adds costs up asks here first.
#pragma once

#include "regen/graph/graph.h"

namespace regen {

// A cost is 0 or at least the first, and all costs of a graph together are at most the second: in
// seconds and in flop far beyond any machine, and far inside the range of a double (1e308).
inline constexpr double kLeastCost = 1e-100;
inline constexpr double kMostCost = 1e100;

// The error names the first op whose cost is too small or takes the sum too far.
Status check_cost_range(const Graph& graph);

}  // namespace regen
