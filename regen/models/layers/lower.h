// Splits layers that stand for several ops, so that each layer left is one op.
#pragma once

#include "regen/models/layers/layers.h"

namespace regen {

// The layers that the output needs (inputs first, then the order of LayerGraph::order) with
//   - fused activations as layers of their own,
//   - separable convolutions as a depthwise and a 1x1 convolution.
// Parameters keep their ids. `net` must have no error.
LayerGraph lower(const LayerGraph& net);

}  // namespace regen
