// Walks of the forward graph in the order of the CPython sets that Checkmate's code builds: its
// published results depend on it.
#pragma once

#include <vector>

#include "regen/graph/graph.h"

namespace regen::published {

// The forward ops in reverse post-order of a depth-first search over the undirected forward
// graph, from each unvisited op in ascending order, neighbours in the order of CPython's sets.
// Not a topological order when the graph branches: Checkmate's greedy heuristic walks it.
std::vector<OpId> undirected_dfs_order(const Graph& graph);

// The two candidate lists of graph/analysis.h in the order in which Checkmate's sqrt(n) heuristic walks them:
// that of the CPython sets which its code builds.
std::vector<OpId> connected_forward_ops_in_set_order(const Graph& graph);
std::vector<OpId> articulation_points_in_set_order(const Graph& graph);

}  // namespace regen::published
