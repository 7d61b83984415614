// The UNet of Stable Diffusion 1.x (Rombach et al., 2022): from a noisy 64x64 latent, a time and
// a text to the noise.
//
// It has three inputs. The text encoder is trained elsewhere, so its output (77 tokens of 768) is
// an input, and so is the sinusoid of the time step (320 numbers), which has no parameters. No
// gradient flows to either.
#include <array>

#include "regen/models/modern/modern_models.h"

namespace regen {
namespace {

constexpr std::int64_t kLatent = 64;
constexpr std::int64_t kLatentChannels = 4;
constexpr std::int64_t kBase = 320;
constexpr std::int64_t kTimeFeatures = 4 * kBase;
constexpr std::int64_t kTextTokens = 77;
constexpr std::int64_t kTextFeatures = 768;
constexpr std::int64_t kGroups = 32;
constexpr std::int64_t kHeads = 8;
constexpr std::size_t kBlocks = 2;  // on the way down, one more on the way up

constexpr std::array<std::int64_t, 4> kFilters = {kBase, 2 * kBase, 4 * kBase, 4 * kBase};
// The lowest level has no attention.
constexpr bool has_attention(std::size_t level) {
  return level + 1 < kFilters.size();
}

class UnetBuilder {
 public:
  LayerGraph build() &&;

 private:
  LayerId conv3x3(LayerId x, std::int64_t filters, std::string name, std::int64_t stride = 1);
  LayerId norm_silu_conv(LayerId x, std::int64_t filters, const std::string& prefix);
  LayerId residual(const std::string& scope, LayerId x, std::int64_t filters);
  LayerId attention(const std::string& prefix, LayerId x, LayerId context);
  LayerId gated_mlp(LayerId x);
  LayerId transformer(const std::string& scope, LayerId x);
  LayerId down(LayerId x);
  LayerId up(LayerId x);

  LayerGraph net_{"diffusion_unet"};
  LayerId time_;
  LayerId text_;
  std::vector<LayerId> skips_;  // what the way down leaves for the way up, last first
};

LayerId UnetBuilder::conv3x3(LayerId x, std::int64_t filters, std::string name,
                             std::int64_t stride) {
  return net_.conv2d(
      x, filters,
      {.kernel = 3, .stride = stride, .padding = Padding::kSame, .name = std::move(name)});
}

LayerId UnetBuilder::norm_silu_conv(LayerId x, std::int64_t filters, const std::string& prefix) {
  x = net_.group_norm(x, kGroups, {.name = prefix + "_norm"});
  x = net_.activation(x, Activation::kSwish, prefix + "_silu");
  return conv3x3(x, filters, prefix + "_conv");
}

LayerId UnetBuilder::residual(const std::string& scope, LayerId x, std::int64_t filters) {
  net_.set_scope(scope);
  LayerId h = norm_silu_conv(x, filters, "in");
  LayerId time = net_.activation(time_, Activation::kSwish, "time_silu");
  time = net_.dense(time, filters, {.name = "time_proj"});
  h = norm_silu_conv(net_.add({h, time}, "time_add"), filters, "out");
  if (net_.channels(x) != filters) x = net_.conv2d(x, filters, {.name = "skip_conv"});
  return net_.add({x, h}, "add");
}

LayerId UnetBuilder::attention(const std::string& prefix, LayerId x, LayerId context) {
  const std::int64_t features = net_.channels(x);
  const LayerId query = net_.dense(x, features, {.bias = false, .name = prefix + "_q"});
  const LayerId key = net_.dense(context, features, {.bias = false, .name = prefix + "_k"});
  const LayerId value = net_.dense(context, features, {.bias = false, .name = prefix + "_v"});
  const LayerId h = net_.attention(query, key, value, {.heads = kHeads, .name = prefix});
  return net_.dense(h, features, {.name = prefix + "_proj"});
}

// GEGLU. The original has one linear layer of 8 times the features and takes its two halves; two
// layers of 4 times have the same parameters, work and bytes.
LayerId UnetBuilder::gated_mlp(LayerId x) {
  const std::int64_t features = net_.channels(x);
  const LayerId value = net_.dense(x, 4 * features, {.name = "mlp_value"});
  LayerId gate = net_.dense(x, 4 * features, {.name = "mlp_gate"});
  gate = net_.activation(gate, Activation::kGelu, "mlp_gelu");
  return net_.dense(net_.multiply({value, gate}, "mlp_mul"), features, {.name = "mlp_out"});
}

LayerId UnetBuilder::transformer(const std::string& scope, LayerId x) {
  net_.set_scope(scope);
  const Shape image = net_.shape(x);
  LayerId h = net_.group_norm(x, kGroups, {.name = "norm"});
  h = net_.conv2d(h, image[2], {.name = "proj_in"});
  h = net_.reshape(h, {image[0] * image[1], image[2]}, "tokens");
  const LayerId own = net_.layer_norm(h, {.name = "self_ln"});
  h = net_.add({h, attention("self_attn", own, own)}, "self_add");
  const LayerId query = net_.layer_norm(h, {.name = "cross_ln"});
  h = net_.add({h, attention("cross_attn", query, text_)}, "cross_add");
  h = net_.add({h, gated_mlp(net_.layer_norm(h, {.name = "mlp_ln"}))}, "mlp_add");
  h = net_.reshape(h, image, "image");
  return net_.add({x, net_.conv2d(h, image[2], {.name = "proj_out"})}, "add");
}

LayerId UnetBuilder::down(LayerId x) {
  for (std::size_t level = 0; level < kFilters.size(); ++level) {
    const std::string prefix = numbered("down", level);
    for (std::size_t block = 0; block < kBlocks; ++block) {
      x = residual(prefix + numbered("_res", block), x, kFilters[level]);
      if (has_attention(level)) x = transformer(prefix + numbered("_transformer", block), x);
      skips_.push_back(x);
    }
    if (level + 1 == kFilters.size()) break;
    net_.set_scope(prefix);
    x = conv3x3(x, kFilters[level], "downsample", /*stride=*/2);
    skips_.push_back(x);
  }
  return x;
}

LayerId UnetBuilder::up(LayerId x) {
  for (std::size_t level = kFilters.size(); level-- > 0;) {
    const std::string prefix = numbered("up", level);
    for (std::size_t block = 0; block < kBlocks + 1; ++block) {
      net_.set_scope(prefix);
      x = net_.concat({x, skips_.back()}, numbered("concat", block));
      skips_.pop_back();
      x = residual(prefix + numbered("_res", block), x, kFilters[level]);
      if (has_attention(level)) x = transformer(prefix + numbered("_transformer", block), x);
    }
    if (level == 0) break;
    net_.set_scope(prefix);
    x = net_.up_sampling2d(x, 2, Interpolation::kNearest, "upsample");
    x = conv3x3(x, kFilters[level], "upsample_conv");
  }
  return x;
}

LayerGraph UnetBuilder::build() && {
  LayerId x = net_.input({kLatent, kLatent, kLatentChannels}, {.name = "latent"});
  time_ = net_.input({kBase}, {.name = "time"});
  text_ = net_.input({kTextTokens, kTextFeatures}, {.name = "text"});
  time_ = net_.dense(time_, kTimeFeatures, {.name = "time_fc1"});
  time_ = net_.activation(time_, Activation::kSwish, "time_silu");
  time_ = net_.dense(time_, kTimeFeatures, {.name = "time_fc2"});
  x = conv3x3(x, kBase, "conv_in");
  skips_.push_back(x);
  x = down(x);
  x = residual("middle_res0", x, kFilters.back());
  x = transformer("middle_transformer", x);
  x = residual("middle_res1", x, kFilters.back());
  x = up(x);
  net_.set_scope("");
  net_.output(norm_silu_conv(x, kLatentChannels, "out"), Loss::kMeanSquare);
  return std::move(net_);
}

}  // namespace

LayerGraph build_diffusion_unet(int) {
  return UnetBuilder().build();
}

}  // namespace regen
