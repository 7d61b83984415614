// A recorded program as the graph for planners: one op for each node that computes, one
// tensor for each storage.
#pragma once

#include <string>

#include "regen/execute/record/record.h"
#include "regen/graph/graph.h"

namespace regen::execute {

struct StepGraphOptions {
  Bytes alignment = 64;  // every planned tensor takes a multiple of it
  // Bytes that are taken for the whole step beside the program's own: saved generator states,
  // what libraries keep, what the caller holds between forward and backward, room for allocations
  // that were not foreseen.
  Bytes runtime_bytes = 0;
  std::string attributes = {};  // of the graph: a JSON object as text, or empty
  // Of a step with a boundary: gradients are planned memory, there at the end, for a caller that drops them before the
  // next step begins. Else they are the caller's own, as outputs are.
  bool lends_gradients = false;
};

// What saved generator states take during a step: one for each random node, and one more while a
// node draws its numbers again. Part of runtime_bytes.
Bytes generator_bytes(const Program& program, c10::Device device);

struct StepGraph {
  Graph graph;
  IdVector<OpId, NodeId> nodes;            // none for the boundary
  IdVector<TensorId, StorageId> storages;  // none for the runtime's own
  IdVector<StorageId, TensorId> tensors;   // none for storages that nothing uses
  OpId boundary;                           // none when the step is one piece
  // What shorter second runs read: small, made once, and outside the planned memory for the whole
  // step. Such tensors have no bytes in the graph; here is where they lie behind each other, or -1.
  IdVector<TensorId, Bytes> resident;
  Bytes resident_bytes = 0;        // part of the graph's fixed bytes
  IdVector<OpId, bool> shortened;  // second runs are the shorter call
};

// With a boundary, results are the caller's: their storages are fixed tensors, written by the ops
// that make them, but for gradients that are lent. Without one, they are planned like everything else
// and on the device at the end.
Result<StepGraph> make_step_graph(const Recording& recording, const StepGraphOptions& options);

}  // namespace regen::execute
