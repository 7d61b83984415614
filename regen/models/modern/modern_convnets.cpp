// Convolutional networks: EfficientNet (Tan and Le, 2019) and ConvNeXt (Liu et al., 2022), shaped
// as in torchvision.
#include <algorithm>
#include <array>

#include "regen/models/modern/modern_models.h"

namespace regen {
namespace {

constexpr std::int64_t kImage = 224;
constexpr std::int64_t kClasses = 1000;

LayerId convnext_block(LayerGraph& net, LayerId x, bool drop) {
  LayerId h =
      net.depthwise_conv2d(x, {.kernel = 7, .padding = Padding::kSame, .name = "depthwise"});
  h = mlp(net, net.layer_norm(h, {.name = "ln"}), 4 * net.channels(x));
  h = net.scale(h, "layer_scale");
  if (drop) h = net.drop_path(h, "drop_path");
  return net.add({x, h}, "add");
}

LayerId convnext_downsample(LayerGraph& net, LayerId x, std::int64_t filters) {
  x = net.layer_norm(x, {.name = "ln"});
  return net.conv2d(x, filters, {.kernel = 2, .stride = 2, .name = "conv"});
}

// One stage of EfficientNet-B0: `count` blocks, of which the first changes size and channels.
struct MbConv {
  std::int64_t expand;
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t filters;
  std::size_t count;
};

constexpr std::array<MbConv, 7> kEfficientNetB0 = {{
    {1, 3, 1, 16, 1},
    {6, 3, 2, 24, 2},
    {6, 5, 2, 40, 2},
    {6, 3, 2, 80, 3},
    {6, 5, 1, 112, 3},
    {6, 5, 2, 192, 4},
    {6, 3, 1, 320, 1},
}};

LayerId norm_silu(LayerGraph& net, LayerId x, const std::string& prefix) {
  x = net.batch_norm(x, {.name = prefix + "_bn"});
  return net.activation(x, Activation::kSwish, prefix + "_silu");
}

// A factor for each channel, computed from the mean of every channel.
LayerId squeeze_excite(LayerGraph& net, LayerId x, std::int64_t squeezed) {
  LayerId factor = net.global_average_pool(x, "se_pool");
  factor = net.dense(factor, squeezed, {.name = "se_fc1"});
  factor = net.activation(factor, Activation::kSwish, "se_silu");
  factor = net.dense(factor, net.channels(x), {.name = "se_fc2"});
  factor = net.activation(factor, Activation::kSigmoid, "se_sigmoid");
  return net.multiply({x, factor}, "se_mul");
}

LayerId mb_conv(LayerGraph& net, LayerId x, const MbConv& stage, std::int64_t stride) {
  const std::int64_t channels = net.channels(x);
  LayerId h = x;
  if (stage.expand != 1) {
    h = net.conv2d(h, stage.expand * channels, {.bias = false, .name = "expand"});
    h = norm_silu(net, h, "expand");
  }
  h = net.depthwise_conv2d(h, {.kernel = stage.kernel,
                               .stride = stride,
                               .padding = Padding::kSame,
                               .bias = false,
                               .name = "depthwise"});
  h = norm_silu(net, h, "depthwise");
  // A quarter of the block's input, not of the expanded channels.
  h = squeeze_excite(net, h, std::max<std::int64_t>(1, channels / 4));
  h = net.conv2d(h, stage.filters, {.bias = false, .name = "project"});
  h = net.batch_norm(h, {.name = "project_bn"});
  if (stride != 1 || channels != stage.filters) return h;
  return net.add({net.drop_path(h, "drop_path"), x}, "add");
}

}  // namespace

LayerGraph build_convnext(int) {
  constexpr std::array<std::size_t, 4> kDepths = {3, 3, 9, 3};
  constexpr std::array<std::int64_t, 4> kFilters = {96, 192, 384, 768};
  LayerGraph net("convnext_t");
  LayerId x = net.input({kImage, kImage, 3});
  x = net.conv2d(x, kFilters[0], {.kernel = 4, .stride = 4, .name = "stem_conv"});
  x = net.layer_norm(x, {.name = "stem_ln"});
  for (std::size_t stage = 0; stage < kDepths.size(); ++stage) {
    const std::string prefix = numbered("stage", stage);
    net.set_scope(prefix + "_downsample");
    if (stage > 0) x = convnext_downsample(net, x, kFilters[stage]);
    for (std::size_t block = 0; block < kDepths[stage]; ++block) {
      net.set_scope(numbered(prefix + "_block", block));
      // The probability of stochastic depth grows from 0 at the first block.
      x = convnext_block(net, x, /*drop=*/stage > 0 || block > 0);
    }
  }
  net.set_scope("");
  x = net.layer_norm(net.global_average_pool(x, "avgpool"), {.name = "ln"});
  net.output(net.dense(x, kClasses, {.name = "head"}));
  return net;
}

LayerGraph build_efficientnet(int) {
  constexpr std::int64_t kStemFilters = 32;
  constexpr std::int64_t kHeadFilters = 1280;
  LayerGraph net("efficientnet_b0");
  LayerId x = net.input({kImage, kImage, 3});
  x = net.conv2d(
      x, kStemFilters,
      {.kernel = 3, .stride = 2, .padding = Padding::kSame, .bias = false, .name = "stem"});
  x = norm_silu(net, x, "stem");
  for (std::size_t stage = 0; stage < kEfficientNetB0.size(); ++stage) {
    const MbConv& config = kEfficientNetB0[stage];
    for (std::size_t block = 0; block < config.count; ++block) {
      net.set_scope(numbered(numbered("stage", stage) + "_block", block));
      x = mb_conv(net, x, config, block == 0 ? config.stride : 1);
    }
  }
  net.set_scope("");
  x = norm_silu(net, net.conv2d(x, kHeadFilters, {.bias = false, .name = "top"}), "top");
  x = net.dropout(net.global_average_pool(x, "avgpool"), "dropout");
  net.output(net.dense(x, kClasses, {.name = "head"}));
  return net;
}

}  // namespace regen
