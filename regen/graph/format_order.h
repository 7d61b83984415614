// Topological order of a file's blocks, and the cycle when there is none.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace regen {

struct TopologicalOrder {
  std::vector<std::uint32_t> order;  // all nodes, if there is no cycle
  std::vector<std::uint32_t> cycle;  // the nodes of one cycle in edge order, or empty
};

// Edges lead from a node to one that must come later. Among the nodes that may come next the one
// of the smallest (priority, number) does, so the answer depends on nothing else.
TopologicalOrder topological_order(std::span<const std::uint64_t> priorities,
                                   std::span<const std::pair<std::uint32_t, std::uint32_t>> edges);

}  // namespace regen
