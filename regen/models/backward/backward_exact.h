// A training step with the ops and the saved tensors that PyTorch's autograd has.
//
//   tensors   the network's inputs and the targets; one fixed tensor for each parameter; running
//             statistics as state; outputs, saved statistics, masks and indices; gradients.
//   forward   one op for each layer, fused activations and separable convolutions split. Views
//             (flatten, reshape) are ops without outputs: readers read what is behind the view.
//   backward  in reverse order. A layer with a weight has one op for the gradient of its
//             parameters and one for that of its input; gradients that meet are added by ops of
//             their own. A gradient that reaches only network inputs is not computed.
//   variants  an op that may overwrite one of its inputs, because no other op reads it, has a
//             second variant "in_place".
//
// Workspaces are 0: how much a convolution takes depends on the library's choice.
#pragma once

#include <cstdint>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/models/layers/layers.h"
#include "regen/models/layers/work.h"

namespace regen {

// What changes the parameters after the backward pass: one op for each parameter, which holds
// one (momentum) or two (adam) state tensors of its size. kNone: the gradients are the outputs.
enum class Optimizer : std::uint8_t { kNone, kSgd, kMomentum, kAdam };

struct ExactOptions {
  std::int64_t batch = 1;
  FlopRules rules = FlopRules::kDefault;  // kCorrect unless given
  Optimizer optimizer = Optimizer::kNone;
};

Result<Graph> exact_graph(const LayerGraph& net, const ExactOptions& options = {});

}  // namespace regen
