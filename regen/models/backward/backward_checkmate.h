// A training step as the Checkmate paper models it. With n layers, op ids and the ids of the
// tensors they make are
//
//   0 .. n-1   layer i in Keras' order, makes its output
//   n          the loss, reads layer n-1, 4 bytes for each sample
//   2n-i       b(i), the gradient of layer i's output; reads i, the outputs of i's consumers j,
//              then their gradients b(j) (the last layer: the loss); costs twice layer i
//
// and at the end two fixed tensors without readers: parameters and their gradients. The
// network's input is not counted.
#pragma once

#include <cstdint>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/models/layers/layers.h"
#include "regen/models/layers/work.h"

namespace regen {

Result<Graph> checkmate_graph(const LayerGraph& net, std::int64_t batch,
                              FlopRules rules = FlopRules::kArtifact);

// The unit chain of the paper's tests: ops 0 to 2N of cost 1 and 1 byte, each reading the one
// before it; op 2N-i also reads op i, for i < N. Op N is the loss.
Result<Graph> unit_chain_graph(std::int64_t forward_ops);

}  // namespace regen
