#include "regen/published/checkmate/set_order.h"

#include <algorithm>

#include "regen/graph/analysis.h"
#include "regen/published/checkmate/cpython_set.h"

namespace regen::published {
namespace {

std::vector<OpId> to_ops(const CPythonIntSet& set) {
  std::vector<OpId> ops;
  for (std::size_t index : set.iteration_order()) ops.emplace_back(index);
  return ops;
}

// Successors are inserted after predecessors because Checkmate walks its edges by target.
std::vector<OpId> neighbours_in_set_order(const OpGraph& graph, OpId op) {
  CPythonIntSet set;
  for (OpId neighbour : graph.predecessors[op]) set.add(neighbour.index());
  for (OpId neighbour : graph.successors[op]) set.add(neighbour.index());
  return to_ops(set);
}

// Both ends of every forward edge: all sources by target, then all targets.
CPythonIntSet connected_set(const Graph& graph) {
  const OpGraph forward = forward_op_graph(graph);
  CPythonIntSet set;
  for (OpId op : graph.ops()) {
    for (OpId source : forward.predecessors[op]) set.add(source.index());
  }
  for (OpId op : graph.ops()) {
    if (!forward.predecessors[op].empty()) set.add(op.index());
  }
  return set;
}

}  // namespace

std::vector<OpId> undirected_dfs_order(const Graph& graph) {
  const OpGraph forward = forward_op_graph(graph);
  struct Frame {
    OpId op;
    std::vector<OpId> neighbours;
    std::size_t next = 0;
  };
  IdVector<OpId, bool> visited(graph.num_ops(), false);
  std::vector<Frame> stack;
  std::vector<OpId> order;
  const auto enter = [&](OpId op) {
    visited[op] = true;
    stack.push_back({op, neighbours_in_set_order(forward, op)});
  };
  for (OpId root : graph.ops()) {
    if (graph.phase(root) != Phase::kForward || visited[root]) continue;
    enter(root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next == frame.neighbours.size()) {
        order.push_back(frame.op);
        stack.pop_back();
      } else if (const OpId next = frame.neighbours[frame.next++]; !visited[next]) {
        enter(next);
      }
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

std::vector<OpId> connected_forward_ops_in_set_order(const Graph& graph) {
  return to_ops(connected_set(graph));
}

std::vector<OpId> articulation_points_in_set_order(const Graph& graph) {
  IdVector<OpId, bool> is_point(graph.num_ops(), false);
  for (OpId op : articulation_points(graph)) is_point[op] = true;
  // Checkmate walks the connected ops and its two virtual vertices, -1 and -2, as one set, and
  // adds the points to another as it finds them.
  CPythonIntSet virtual_ends;
  virtual_ends.add(static_cast<std::size_t>(-1));
  virtual_ends.add(static_cast<std::size_t>(-2));
  CPythonIntSet points;
  for (std::size_t index : connected_set(graph).union_with(virtual_ends).iteration_order()) {
    if (index < graph.num_ops() && is_point[OpId(index)]) points.add(index);
  }
  return to_ops(points);
}

}  // namespace regen::published
