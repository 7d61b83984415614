#include "regen/graph/analysis.h"

#include <algorithm>
#include <utility>

namespace regen {
namespace {

using Edge = std::pair<OpId, OpId>;  // from a predecessor to a successor

// The last op that reads each tensor in its default variant.
IdVector<TensorId, OpId> last_default_uses(const Graph& graph) {
  IdVector<TensorId, OpId> last(graph.num_tensors());
  for (OpId op : graph.ops()) {
    for (TensorId t : graph.reads(graph.default_variant(op))) last[t] = op;
  }
  return last;
}

// The edges to each op in id order, in argument order, as long as `keep` accepts both ends.
template <typename Keep>
std::vector<Edge> data_edges(const Graph& graph, Keep keep) {
  std::vector<Edge> edges;
  IdVector<OpId, OpId> seen_from(graph.num_ops());  // the op that has the key as predecessor
  for (OpId op : graph.ops()) {
    if (!keep(op)) continue;
    for (TensorId t : graph.inputs(op)) {
      const OpId maker = graph.producer(t);
      if (!maker.valid() || !keep(maker) || seen_from[maker] == op) continue;
      seen_from[maker] = op;
      edges.emplace_back(maker, op);
    }
  }
  return edges;
}

std::vector<Edge> forward_edges(const Graph& graph) {
  return data_edges(graph, [&](OpId op) { return graph.phase(op) == Phase::kForward; });
}

OpGraph from_edges(std::size_t num_ops, std::vector<Edge>& edges) {
  OpGraph result;
  result.successors = Csr<OpId, OpId>::from_pairs(num_ops, edges);
  for (Edge& edge : edges) std::swap(edge.first, edge.second);
  result.predecessors = Csr<OpId, OpId>::from_pairs(num_ops, edges);
  return result;
}

// For a fixed tensor read by r1 < r2 < ... and mutated by m1 < m2 < ...: each reader before the
// next mutation and after the last one, and the mutations in order.
void add_mutation_edges(std::span<const OpId> readers, std::span<const OpId> mutators,
                        std::vector<Edge>& edges) {
  auto reader = readers.begin();
  OpId last_mutator;
  const auto add = [&](OpId from, OpId to) {
    if (from.valid() && to.valid() && from != to) edges.emplace_back(from, to);
  };
  for (OpId mutator : mutators) {
    add(last_mutator, mutator);
    for (; reader != readers.end() && *reader <= mutator; ++reader) {
      add(last_mutator, *reader);
      add(*reader, mutator);
    }
    last_mutator = mutator;
  }
  for (; reader != readers.end(); ++reader) add(last_mutator, *reader);
}

// The neighbours of a vertex: its predecessors, then its successors.
class Undirected {
 public:
  explicit Undirected(const OpGraph& graph) : graph_(graph) {}
  std::size_t degree(OpId op) const {
    return graph_.predecessors[op].size() + graph_.successors[op].size();
  }
  OpId neighbour(OpId op, std::size_t i) const {
    const auto before = graph_.predecessors[op];
    return i < before.size() ? before[i] : graph_.successors[op][i - before.size()];
  }

 private:
  const OpGraph& graph_;
};

// Tarjan's algorithm with a stack of its own: graphs are deeper than the machine's stack.
class ArticulationSearch {
 public:
  ArticulationSearch(const Undirected& graph, std::size_t num_ops)
      : graph_(graph), number_(num_ops, 0), low_(num_ops, 0), cuts_(num_ops, false) {}

  bool visited(OpId op) const { return number_[op] != 0; }
  // Whether the op separates its component.
  bool cuts(OpId op) const { return cuts_[op]; }

  void visit_component(OpId root) {
    std::size_t root_children = 0;
    enter(root, OpId::none());
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next < graph_.degree(frame.op)) {
        const OpId neighbour = graph_.neighbour(frame.op, frame.next++);
        if (neighbour == frame.parent) continue;
        if (visited(neighbour)) {
          low_[frame.op] = std::min(low_[frame.op], number_[neighbour]);
        } else {
          enter(neighbour, frame.op);
        }
        continue;
      }
      const Frame done = frame;
      stack_.pop_back();
      if (stack_.empty()) break;
      low_[done.parent] = std::min(low_[done.parent], low_[done.op]);
      if (done.parent == root) {
        ++root_children;
      } else if (low_[done.op] >= number_[done.parent]) {
        cuts_[done.parent] = true;
      }
    }
    cuts_[root] = root_children > 1;
  }

 private:
  struct Frame {
    OpId op;
    OpId parent;
    std::size_t next = 0;  // neighbour to look at
  };

  void enter(OpId op, OpId parent) {
    number_[op] = low_[op] = ++count_;
    stack_.push_back({op, parent});
  }

  const Undirected& graph_;
  IdVector<OpId, std::uint32_t> number_;  // in order of discovery from 1; 0: not visited
  IdVector<OpId, std::uint32_t> low_;     // smallest number reached from the subtree
  IdVector<OpId, bool> cuts_;
  std::uint32_t count_ = 0;
  std::vector<Frame> stack_;
};

}  // namespace

IdVector<TensorId, OpId> last_uses(const Graph& graph) {
  IdVector<TensorId, OpId> last(graph.num_tensors());
  for (TensorId t : graph.tensors()) {
    if (!graph.consumers(t).empty()) last[t] = graph.consumers(t).back();
  }
  return last;
}

Liveness live_bytes_keep_all(const Graph& graph) {
  const IdVector<TensorId, OpId> last = last_default_uses(graph);
  const auto stays = [&](TensorId t) {
    return graph.fixed(t) || graph.kind(t) == TensorKind::kOutput;
  };
  Liveness result{.bytes = IdVector<OpId, Bytes>(graph.num_ops())};
  IdVector<TensorId, bool> present(graph.num_tensors(), false);
  Bytes live = graph.fixed_bytes();
  const auto leave = [&](TensorId t) {
    if (present[t]) live -= graph.bytes(t);
    present[t] = false;
  };
  for (OpId op : graph.ops()) {
    const VariantId v = graph.default_variant(op);
    for (TensorId t : graph.makes(v)) {
      present[t] = true;
      live += graph.bytes(t);
    }
    const TensorId old = graph.overwrites(v);
    // The first output is in the old tensor's place, so it takes no bytes of its own yet.
    const Bytes shared = old.valid() ? graph.bytes(graph.makes(v)[0]) : 0;
    result.bytes[op] = live - shared + graph.workspace(v);
    if (!result.peak_op.valid() || result.bytes[op] > result.peak_bytes) {
      result.peak_bytes = result.bytes[op];
      result.peak_op = op;
    }
    if (old.valid()) leave(old);
    for (TensorId t : graph.reads(v)) {
      if (last[t] == op && !stays(t)) leave(t);
    }
    for (TensorId t : graph.makes(v)) {
      if (!last[t].valid() && !stays(t)) leave(t);
    }
  }
  return result;
}

OpGraph op_graph(const Graph& graph) {
  std::vector<Edge> edges = data_edges(graph, [](OpId) { return true; });
  return from_edges(graph.num_ops(), edges);
}

OpGraph forward_op_graph(const Graph& graph) {
  std::vector<Edge> edges = forward_edges(graph);
  return from_edges(graph.num_ops(), edges);
}

OpGraph ordering_graph(const Graph& graph) {
  std::vector<Edge> edges = data_edges(graph, [](OpId) { return true; });
  std::vector<std::pair<TensorId, OpId>> mutations;
  for (OpId op : graph.ops()) {
    for (TensorId t : graph.mutates(op)) mutations.emplace_back(t, op);
  }
  if (mutations.empty()) return from_edges(graph.num_ops(), edges);
  const auto mutators = Csr<TensorId, OpId>::from_pairs(graph.num_tensors(), mutations);
  for (TensorId t : graph.tensors()) {
    if (!mutators[t].empty()) add_mutation_edges(graph.consumers(t), mutators[t], edges);
  }
  // Once more by target, so that rows of successors ascend; repetitions go.
  for (Edge& edge : edges) std::swap(edge.first, edge.second);
  const auto predecessors = Csr<OpId, OpId>::from_pairs(graph.num_ops(), edges);
  std::vector<Edge> unique;
  IdVector<OpId, OpId> seen_from(graph.num_ops());
  for (OpId op : graph.ops()) {
    for (OpId earlier : predecessors[op]) {
      if (std::exchange(seen_from[earlier], op) != op) unique.emplace_back(earlier, op);
    }
  }
  return from_edges(graph.num_ops(), unique);
}

bool is_topological(const Graph& graph, std::span<const OpId> order) {
  if (order.size() != graph.num_ops()) return false;
  const OpGraph before = ordering_graph(graph);
  IdVector<OpId, bool> done(graph.num_ops(), false);
  for (OpId op : order) {
    if (op.index() >= graph.num_ops() || done[op]) return false;
    for (OpId earlier : before.predecessors[op]) {
      if (!done[earlier]) return false;
    }
    done[op] = true;
  }
  return true;
}

std::vector<OpId> connected_forward_ops(const Graph& graph) {
  const OpGraph forward = forward_op_graph(graph);
  const Undirected undirected(forward);
  std::vector<OpId> ops;
  for (OpId op : graph.ops()) {
    if (undirected.degree(op) > 0) ops.push_back(op);
  }
  return ops;
}

std::vector<OpId> articulation_points(const Graph& graph) {
  const OpGraph forward = forward_op_graph(graph);
  const Undirected undirected(forward);
  std::vector<OpId> connected = connected_forward_ops(graph);
  ArticulationSearch search(undirected, graph.num_ops());
  std::size_t components = 0;
  for (OpId op : connected) {
    if (search.visited(op)) continue;
    search.visit_component(op);
    ++components;
  }
  // With two components one of them is left whatever is taken from the other.
  if (components > 1) return connected;
  std::vector<OpId> points;
  for (OpId op : connected) {
    const bool at_virtual_end = op == connected.front() || op == connected.back();
    if (at_virtual_end || search.cuts(op)) points.push_back(op);
  }
  return points;
}

}  // namespace regen
