// How much arithmetic a layer does. The unit is one multiply-accumulate or one elementwise
// operation, counted once.
#pragma once

#include <cstdint>

#include "regen/models/layers/layers.h"

namespace regen {

// kArtifact: the table of Checkmate's published code, oddities included (pools are free, a
// transposed convolution ignores its kernel, a dense layer its rows); kinds it lacks follow
// kCorrect. kCorrect: what a layer does, views being the only free ones.
// kDefault: what fits the kind of graph (see ZooOptions).
enum class FlopRules : std::uint8_t { kDefault, kArtifact, kCorrect };

// For one sample, a fused activation included. `rules` must not be kDefault.
double forward_flops(const LayerGraph& net, LayerId layer, FlopRules rules);

// The multiply-accumulates of a layer with a weight, and nothing else; 0 for other kinds.
double weight_flops(const LayerGraph& net, LayerId layer);

// Bytes of all parameters of a layer.
std::int64_t parameter_bytes(const LayerGraph& net, LayerId layer);

// Parameters of the layers that the output needs, shared ones once.
std::int64_t count_parameters(const LayerGraph& net);

}  // namespace regen
