// Vision transformers: ViT (Dosovitskiy et al., 2020) and Swin (Liu et al., 2021), shaped as in
// torchvision.
#include <array>

#include "regen/models/modern/modern_models.h"

namespace regen {
namespace {

constexpr std::int64_t kImage = 224;
constexpr std::int64_t kClasses = 1000;

LayerId vit_block(LayerGraph& net, LayerId x) {
  constexpr std::int64_t kHeads = 12;
  LayerId h = packed_attention(net, net.layer_norm(x, {.name = "ln_1"}), {.heads = kHeads});
  x = net.add({x, h}, "attn_add");
  h = mlp(net, net.layer_norm(x, {.name = "ln_2"}), 4 * net.channels(x));
  return net.add({x, h}, "mlp_add");
}

constexpr std::int64_t kWindow = 7;

// Attention inside windows of 7x7 patches. Every other block shifts the windows by half, unless
// one window covers the image.
LayerId window_attention(LayerGraph& net, LayerId x, bool shift) {
  constexpr std::int64_t kHeadSize = 32;
  constexpr std::int64_t kOffsets = (2 * kWindow - 1) * (2 * kWindow - 1);
  const Shape image = net.shape(x);
  const std::int64_t windows = (image[0] / kWindow) * (image[1] / kWindow);
  const std::int64_t heads = image[2] / kHeadSize;
  if (shift) x = net.roll(x, "shift");
  x = net.rearrange(x, {windows, kWindow * kWindow, image[2]}, "window_partition");
  x = packed_attention(net, x, {.heads = heads, .bias_parameters = kOffsets * heads});
  x = net.rearrange(x, image, "window_merge");
  return shift ? net.roll(x, "unshift") : x;
}

LayerId swin_block(LayerGraph& net, LayerId x, bool shift, bool drop) {
  const auto residual = [&](LayerId h, const std::string& branch) {
    if (drop) h = net.drop_path(h, branch + "_drop_path");
    return net.add({x, h}, branch + "_add");
  };
  x = residual(window_attention(net, net.layer_norm(x, {.name = "ln_1"}), shift), "attn");
  return residual(mlp(net, net.layer_norm(x, {.name = "ln_2"}), 4 * net.channels(x)), "mlp");
}

// Each 2x2 patches become one with twice the channels.
LayerId merge_patches(LayerGraph& net, LayerId x) {
  const Shape image = net.shape(x);
  x = net.rearrange(x, {image[0] / 2, image[1] / 2, 4 * image[2]}, "gather");
  x = net.layer_norm(x, {.name = "ln"});
  return net.dense(x, 2 * image[2], {.bias = false, .name = "reduction"});
}

}  // namespace

LayerGraph build_vit(int) {
  constexpr std::int64_t kPatch = 16;
  constexpr std::int64_t kFeatures = 768;
  constexpr std::int64_t kPatches = (kImage / kPatch) * (kImage / kPatch);
  constexpr std::size_t kLayers = 12;
  LayerGraph net("vit_b_16");
  LayerId x = net.input({kImage, kImage, 3});
  x = net.conv2d(x, kFeatures, {.kernel = kPatch, .stride = kPatch, .name = "conv_proj"});
  x = net.reshape(x, {kPatches, kFeatures}, "patches");
  x = net.prepend_token(x, "class_token");
  x = net.add_parameter(x, {kPatches + 1, kFeatures}, "pos_embedding");
  for (std::size_t i = 0; i < kLayers; ++i) {
    net.set_scope(numbered("layer", i));
    x = vit_block(net, x);
  }
  net.set_scope("");
  x = net.select_token(net.layer_norm(x, {.name = "ln"}), "first_token");
  net.output(net.dense(x, kClasses, {.name = "head"}));
  return net;
}

LayerGraph build_swin(int) {
  constexpr std::int64_t kPatch = 4;
  constexpr std::int64_t kFeatures = 96;
  constexpr std::array<std::size_t, 4> kDepths = {2, 2, 6, 2};
  LayerGraph net("swin_t");
  LayerId x = net.input({kImage, kImage, 3});
  x = net.conv2d(x, kFeatures, {.kernel = kPatch, .stride = kPatch, .name = "patch_conv"});
  x = net.layer_norm(x, {.name = "patch_ln"});
  for (std::size_t stage = 0; stage < kDepths.size(); ++stage) {
    const std::string prefix = numbered("stage", stage);
    for (std::size_t block = 0; block < kDepths[stage]; ++block) {
      net.set_scope(numbered(prefix + "_block", block));
      const bool shift = block % 2 == 1 && net.shape(x)[0] > kWindow;
      // The probability of stochastic depth grows from 0 at the first block.
      x = swin_block(net, x, shift, /*drop=*/stage > 0 || block > 0);
    }
    net.set_scope(prefix + "_merge");
    if (stage + 1 < kDepths.size()) x = merge_patches(net, x);
  }
  net.set_scope("");
  x = net.global_average_pool(net.layer_norm(x, {.name = "ln"}), "avgpool");
  net.output(net.dense(x, kClasses, {.name = "head"}));
  return net;
}

}  // namespace regen
