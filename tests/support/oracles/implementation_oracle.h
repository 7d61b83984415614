// The cheapest plan of a tiny graph over every sequence of runs and releases, each run in any of
// its variants, as long as first runs follow the order of the graph and nothing moves: shortest
// paths over what is on the device. It shares no code with the planners.
#pragma once

#include <optional>

#include "regen/base/random.h"
#include "regen/graph/graph.h"

namespace regen::testing {

// Graphs of at most 20 planned tensors and 31 ops. Nothing if no plan keeps the budget, which
// includes the fixed bytes. With `outputs_stay` results of the step are never made twice.
std::optional<double> cheapest_over_variants(const Graph& graph, Bytes budget,
                                             bool outputs_stay = false);

// A chain with skips of `layers` layers and their gradients. Some forward ops can make a small mask
// besides; a backward op reads the layer's input, or in another of its variants the output, or the
// mask. Costs are whole numbers, bytes multiples of the unit.
Graph random_graph_with_implementations(Random& random, int layers, Bytes unit = 1);

}  // namespace regen::testing
