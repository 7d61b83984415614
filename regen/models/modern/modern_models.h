// The builders behind the table of networks after 2018, and what they share.
//
// Rules that hold for all of them:
//   - Layers are those that a PyTorch user sees, activations being layers of their own.
//   - Dropout and stochastic depth of probability 0 are left out: PyTorch returns their input.
//   - Attention is one layer that never stores the scores (PyTorch's fused kernels), so dropout
//     on the scores is inside it and not a layer.
//   - Channels are last, so going from images to tokens is a view and the permutations around
//     PyTorch's layer norms on images are not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "regen/models/layers/layers.h"

namespace regen {

LayerGraph build_gpt2(int size);               // 0 small, 1 medium, 2 large, 3 xl
LayerGraph build_bert(int size);               // 0 base, 1 large
LayerGraph build_llama(int variant);           // the variant has no meaning
LayerGraph build_vit(int variant);             // the variant has no meaning
LayerGraph build_swin(int variant);            // the variant has no meaning
LayerGraph build_convnext(int variant);        // the variant has no meaning
LayerGraph build_efficientnet(int variant);    // the variant has no meaning
LayerGraph build_diffusion_unet(int variant);  // the variant has no meaning

inline std::string numbered(std::string name, std::size_t number) {
  return name.append(std::to_string(number));
}

// Linear to `hidden`, gelu, linear back: the block of nearly every transformer.
inline LayerId mlp(LayerGraph& net, LayerId x, std::int64_t hidden) {
  const std::int64_t features = net.channels(x);
  const LayerId h = net.dense(x, hidden, {.name = "mlp_fc1"});
  return net.dense(net.activation(h, Activation::kGelu, "mlp_gelu"), features, {.name = "mlp_fc2"});
}

// Linear to query, key and value at once, attention, linear back.
inline LayerId packed_attention(LayerGraph& net, LayerId x, AttentionOptions options) {
  const std::int64_t features = net.channels(x);
  const LayerId qkv = net.dense(x, 3 * features, {.name = "attn_qkv"});
  options.name = "attn";
  return net.dense(net.attention_packed(qkv, std::move(options)), features, {.name = "attn_proj"});
}

}  // namespace regen
