// Facts about a graph that several planners need. Everything takes time linear in the number of
// ops, tensors and edges.
#pragma once

#include <span>
#include <vector>

#include "regen/graph/csr.h"
#include "regen/graph/graph.h"

namespace regen {

// For each tensor the last op in id order that reads it in some variant; none if nothing does.
IdVector<TensorId, OpId> last_uses(const Graph& graph);

// Memory of the step that computes every op once in id order with its default variant and
// releases each tensor after the last op that reads it there (outputs stay, unread tensors go
// at once): what a framework without a planner needs.
struct Liveness {
  IdVector<OpId, Bytes> bytes;  // fixed + live + workspace while the op runs
  Bytes peak_bytes = 0;
  OpId peak_op;  // the first with that peak
};
Liveness live_bytes_keep_all(const Graph& graph);

// Ops as vertices. Rows have no repetitions.
struct OpGraph {
  Csr<OpId, OpId> predecessors;  // makers of the inputs, in argument order
  Csr<OpId, OpId> successors;    // ascending
};
OpGraph op_graph(const Graph& graph);

// Only the edges between two ops of the forward phase; the rows of all others are empty.
OpGraph forward_op_graph(const Graph& graph);

// op_graph, and the edges that keep every reader of a fixed tensor on its side of the ops that
// mutate it: what any other order of the ops has to respect.
OpGraph ordering_graph(const Graph& graph);

// Whether `order` has every op once, each after all of its predecessors in ordering_graph.
bool is_topological(const Graph& graph, std::span<const OpId> order);

// Forward ops that touch a forward edge, ascending: the candidates for checkpoints without
// regard to articulation points.
std::vector<OpId> connected_forward_ops(const Graph& graph);

// The articulation points of the undirected forward graph, ascending: connected forward ops
// without which more than one component is left. Two virtual vertices hang on the first and on
// the highest connected op, so these two always belong.
//
//   0 - 1 - 3 - 4    Without 1 the others hang together through 2, and the other way round.
//    \- 2 -/         Without 0 or 4 a virtual vertex is cut off, without 3 the 4: so 0, 3, 4.
std::vector<OpId> articulation_points(const Graph& graph);

}  // namespace regen
