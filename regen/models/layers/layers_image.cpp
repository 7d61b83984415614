// Layers on images: convolutions, pools, borders and sizes.
#include <algorithm>

#include "regen/models/layers/layers.h"

namespace regen {
namespace {

// Output size of a window that slides over `in`; 0 or less when it does not fit.
std::int64_t slide(std::int64_t in, std::int64_t window, std::int64_t stride, Padding padding) {
  if (padding == Padding::kSame) return (in + stride - 1) / stride;
  return in < window ? 0 : (in - window) / stride + 1;
}

Size2 slide(const Shape& in, Size2 window, Size2 stride, Padding padding) {
  return {slide(in[0], window.height, stride.height, padding),
          slide(in[1], window.width, stride.width, padding)};
}

Size2 dilated(const ConvOptions& options) {
  return {(options.kernel.height - 1) * options.dilation.height + 1,
          (options.kernel.width - 1) * options.dilation.width + 1};
}

std::int64_t weight_count(Size2 kernel, std::int64_t in, std::int64_t out) {
  return num_elements({kernel.height, kernel.width, in, out});
}

bool small(Size2 size) {
  constexpr std::int64_t kLimit = 1 << 20;
  return size.height >= 1 && size.width >= 1 && size.height <= kLimit && size.width <= kLimit;
}

}  // namespace

LayerId LayerGraph::push_conv(LayerKind kind, LayerId x, std::int64_t filters, ConvOptions options,
                              const std::vector<std::pair<const char*, std::int64_t>>& weights) {
  const std::string what(to_string(kind));
  if (!check_input(what.c_str(), x, 3) || !check_positive(what.c_str(), x, filters, "filters")) {
    return push({}, "");
  }
  if (!small(options.kernel) || !small(options.stride) || !small(options.dilation)) {
    fail(what + " on '" + layers_[x].name + "': kernel, stride and dilation must be 1 to 2^20");
    return push({}, "");
  }
  const Shape& in = shape(x);
  Size2 out = slide(in, dilated(options), options.stride, options.padding);
  if (kind == LayerKind::kConv2dTranspose) {
    const bool valid = options.padding == Padding::kValid;
    const Size2 extra =
        valid ? Size2{std::max<std::int64_t>(options.kernel.height - options.stride.height, 0),
                      std::max<std::int64_t>(options.kernel.width - options.stride.width, 0)}
              : Size2(0);
    out = {in[0] * options.stride.height + extra.height,
           in[1] * options.stride.width + extra.width};
  }
  const LayerId y = push({.kind = kind,
                          .inputs = {x},
                          .shape = {out.height, out.width, filters},
                          .activation = options.activation,
                          .kernel = options.kernel,
                          .stride = options.stride,
                          .groups = options.groups,
                          .bias = options.bias},
                         std::move(options.name));
  for (const auto& [role, count] : weights) add_param(y, role, count);
  if (options.bias) add_param(y, "bias", filters);
  return y;
}

LayerId LayerGraph::conv2d(LayerId x, std::int64_t filters, ConvOptions options) {
  if (!check_input("conv2d", x, 3)) return push({}, "");
  const std::int64_t channels_in = channels(x);
  const std::int64_t groups = options.groups;
  if (groups < 1 || channels_in % groups != 0 || filters % groups != 0) {
    fail("conv2d on '" + layers_[x].name + "': " + std::to_string(groups) +
         " groups do not divide " + std::to_string(channels_in) + " and " +
         std::to_string(filters) + " channels");
    return push({}, "");
  }
  const std::int64_t weight = weight_count(options.kernel, channels_in / groups, filters);
  return push_conv(LayerKind::kConv2d, x, filters, std::move(options), {{"kernel", weight}});
}

LayerId LayerGraph::depthwise_conv2d(LayerId x, ConvOptions options) {
  if (!check_input("depthwise_conv2d", x, 3)) return push({}, "");
  const std::int64_t weight = weight_count(options.kernel, channels(x), 1);
  options.groups = channels(x);
  return push_conv(LayerKind::kDepthwiseConv2d, x, channels(x), std::move(options),
                   {{"depthwise_kernel", weight}});
}

LayerId LayerGraph::separable_conv2d(LayerId x, std::int64_t filters, ConvOptions options) {
  if (!check_input("separable_conv2d", x, 3)) return push({}, "");
  const std::int64_t depthwise = weight_count(options.kernel, channels(x), 1);
  const std::int64_t pointwise = num_elements({channels(x), filters});
  return push_conv(LayerKind::kSeparableConv2d, x, filters, std::move(options),
                   {{"depthwise_kernel", depthwise}, {"pointwise_kernel", pointwise}});
}

LayerId LayerGraph::conv2d_transpose(LayerId x, std::int64_t filters, ConvOptions options) {
  if (!check_input("conv2d_transpose", x, 3)) return push({}, "");
  const std::int64_t weight = weight_count(options.kernel, channels(x), filters);
  return push_conv(LayerKind::kConv2dTranspose, x, filters, std::move(options),
                   {{"kernel", weight}});
}

LayerId LayerGraph::push_pool(LayerKind kind, LayerId x, PoolOptions options) {
  const std::string what(to_string(kind));
  if (!check_input(what.c_str(), x, 3)) return push({}, "");
  const Size2 stride = options.stride.value_or(options.window);
  if (!small(options.window) || !small(stride)) {
    fail(what + " on '" + layers_[x].name + "': window and stride must be 1 to 2^20");
    return push({}, "");
  }
  const Size2 out = slide(shape(x), options.window, stride, options.padding);
  return push({.kind = kind,
               .inputs = {x},
               .shape = {out.height, out.width, channels(x)},
               .kernel = options.window,
               .stride = stride},
              std::move(options.name));
}

LayerId LayerGraph::max_pool2d(LayerId x, PoolOptions options) {
  return push_pool(LayerKind::kMaxPool2d, x, std::move(options));
}

LayerId LayerGraph::average_pool2d(LayerId x, PoolOptions options) {
  return push_pool(LayerKind::kAveragePool2d, x, std::move(options));
}

LayerId LayerGraph::global_average_pool(LayerId x, std::string name) {
  if (!check_input("global_average_pool", x)) return push({}, "");
  return push({.kind = LayerKind::kGlobalAveragePool, .inputs = {x}, .shape = {channels(x)}},
              std::move(name));
}

LayerId LayerGraph::zero_pad2d(LayerId x, Border border, std::string name) {
  if (!check_input("zero_pad2d", x, 3)) return push({}, "");
  const Shape& in = shape(x);
  return push(
      {.kind = LayerKind::kZeroPad2d,
       .inputs = {x},
       .shape = {in[0] + border.top + border.bottom, in[1] + border.left + border.right, in[2]}},
      std::move(name));
}

LayerId LayerGraph::push_crop(LayerKind kind, LayerId x, Border border, std::string name) {
  if (!check_input("cropping2d", x, 3)) return push({}, "");
  const Shape& in = shape(x);
  return push(
      {.kind = kind,
       .inputs = {x},
       .shape = {in[0] - border.top - border.bottom, in[1] - border.left - border.right, in[2]}},
      std::move(name));
}

LayerId LayerGraph::cropping2d(LayerId x, Border border, std::string name) {
  return push_crop(LayerKind::kCropping2d, x, border, std::move(name));
}

LayerId LayerGraph::lambda_crop(LayerId x, Border border, std::string name) {
  return push_crop(LayerKind::kLambdaCrop, x, border, std::move(name));
}

LayerId LayerGraph::up_sampling2d(LayerId x, Size2 factor, Interpolation interpolation,
                                  std::string name) {
  if (!check_input("up_sampling2d", x, 3)) return push({}, "");
  const Shape& in = shape(x);
  if (!small(factor)) {
    fail("up_sampling2d on '" + layers_[x].name + "': the factor must be 1 to 2^20");
    return push({}, "");
  }
  return push({.kind = LayerKind::kUpSampling2d,
               .inputs = {x},
               .shape = {in[0] * factor.height, in[1] * factor.width, in[2]},
               .kernel = factor,
               .interpolation = interpolation},
              std::move(name));
}

LayerId LayerGraph::resize(LayerId x, Size2 size, std::string name) {
  if (!check_input("resize", x, 3)) return push({}, "");
  return push({.kind = LayerKind::kResize,
               .inputs = {x},
               .shape = {size.height, size.width, channels(x)},
               .interpolation = Interpolation::kBilinear},
              std::move(name));
}

}  // namespace regen
