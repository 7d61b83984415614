// Exhaustive search over stage schedules of tiny graphs: every choice of what each
// stage hands to the next, priced step by step. It shares no code with the planners.
#pragma once

#include <vector>

#include "regen/base/random.h"
#include "regen/graph/graph.h"

namespace regen::testing {

// A schedule's cost and its peak without fixed bytes.
struct Tradeoff {
  Bytes peak = 0;
  double cost = 0;

  bool operator==(const Tradeoff&) const = default;
};

// The schedules that no other beats in both, by ascending peak. Graphs of at most 24 ops with one
// output and one variant each. Without `gradients_again` only forward ops run twice.
std::vector<Tradeoff> frontier_tradeoffs(const Graph& graph, bool gradients_again);

// A random network with a gradient for each layer, as Checkmate builds them, with a random choice
// of sizes, costs (zeros included), workspaces and ops that may not run again.
Graph random_mirrored_graph(Random& random, int layers);

}  // namespace regen::testing
