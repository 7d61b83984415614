// The four encoders of keras_segmentation.
#include <string>

#include "regen/models/segmentation/segmentation.h"

namespace regen {
namespace {

constexpr Border kBorder1 = {1, 1, 1, 1};

Taps vanilla_encoder(LayerGraph& net, LayerId x) {
  constexpr std::int64_t kFilters[] = {64, 128, 256, 256, 256};
  Taps taps;
  for (std::size_t i = 0; i < taps.size(); ++i) {
    x = net.conv2d(net.zero_pad2d(x, kBorder1), kFilters[i], {.kernel = 3});
    x = net.max_pool2d(net.relu(net.batch_norm(x)));
    taps[i] = x;
  }
  return taps;
}

Taps vgg_encoder(LayerGraph& net, LayerId x) {
  constexpr std::int64_t kFilters[] = {64, 128, 256, 512, 512};
  Taps taps;
  for (std::size_t i = 0; i < taps.size(); ++i) {
    const std::string block = "block" + std::to_string(i + 1);
    for (int conv = 1; conv <= (i < 2 ? 2 : 3); ++conv) {
      x = net.conv2d(x, kFilters[i],
                     {.kernel = 3,
                      .padding = Padding::kSame,
                      .activation = Activation::kRelu,
                      .name = block + "_conv" + std::to_string(conv)});
    }
    x = net.max_pool2d(x, {.name = block + "_pool"});
    taps[i] = x;
  }
  return taps;
}

// A block of the older Keras ResNet50: the main path first in the sum.
LayerId resnet_block(LayerGraph& net, LayerId x, std::int64_t filters, std::int64_t stride,
                     bool project, const std::string& id) {
  LayerId y = net.conv2d(x, filters, {.stride = stride, .name = "res" + id + "_branch2a"});
  y = net.relu(net.batch_norm(y, {.name = "bn" + id + "_branch2a"}));
  y = net.conv2d(y, filters,
                 {.kernel = 3, .padding = Padding::kSame, .name = "res" + id + "_branch2b"});
  y = net.relu(net.batch_norm(y, {.name = "bn" + id + "_branch2b"}));
  y = net.conv2d(y, 4 * filters, {.name = "res" + id + "_branch2c"});
  y = net.batch_norm(y, {.name = "bn" + id + "_branch2c"});
  if (project) {
    x = net.conv2d(x, 4 * filters, {.stride = stride, .name = "res" + id + "_branch1"});
    x = net.batch_norm(x, {.name = "bn" + id + "_branch1"});
  }
  return net.relu(net.add({y, x}));
}

Taps resnet50_encoder(LayerGraph& net, LayerId x) {
  constexpr int kBlocks[] = {3, 4, 6, 3};
  Taps taps;
  x = net.conv2d(net.zero_pad2d(x, {3, 3, 3, 3}), 64, {.kernel = 7, .stride = 2, .name = "conv1"});
  taps[0] = x;
  x = net.relu(net.batch_norm(x, {.name = "bn_conv1"}));
  x = net.max_pool2d(x, {.window = 3, .stride = 2});
  for (std::size_t stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < kBlocks[stage]; ++i) {
      const std::string id = std::to_string(stage + 2) + static_cast<char>('a' + i);
      const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
      x = resnet_block(net, x, std::int64_t{64} << stage, stride, i == 0, id);
    }
    taps[stage + 1] = x;
  }
  // The pool above does not pad, so this tap is one row and column short of a quarter.
  taps[1] = net.lambda_crop(net.zero_pad2d(taps[1], kBorder1), {.bottom = 1, .right = 1});
  return taps;
}

LayerId bn_relu6(LayerGraph& net, LayerId x, const std::string& name) {
  return net.activation(net.batch_norm(x, {.name = name + "_bn"}), Activation::kRelu6,
                        name + "_relu");
}

// Unlike keras.applications, every block pads on all sides.
Taps mobilenet_encoder(LayerGraph& net, LayerId x) {
  constexpr std::int64_t kFilters[] = {64,  128, 128, 256, 256,  512, 512,
                                       512, 512, 512, 512, 1024, 1024};
  Taps taps;
  std::size_t tap = 0;
  x = net.zero_pad2d(x, kBorder1, "conv1_pad");
  x = net.conv2d(x, 32, {.kernel = 3, .stride = 2, .bias = false, .name = "conv1"});
  x = bn_relu6(net, x, "conv1");
  int number = 1;
  for (std::int64_t filters : kFilters) {
    const std::string id = std::to_string(number);
    const bool shrink = number == 2 || number == 4 || number == 6 || number == 12;
    if (shrink) taps[tap++] = x;
    x = net.zero_pad2d(x, kBorder1, "conv_pad_" + id);
    x = net.depthwise_conv2d(
        x, {.kernel = 3, .stride = shrink ? 2 : 1, .bias = false, .name = "conv_dw_" + id});
    x = bn_relu6(net, x, "conv_dw_" + id);
    x = net.conv2d(x, filters, {.bias = false, .name = "conv_pw_" + id});
    x = bn_relu6(net, x, "conv_pw_" + id);
    ++number;
  }
  taps[tap] = x;
  return taps;
}

}  // namespace

Taps add_encoder(LayerGraph& net, Encoder encoder, Size2 image) {
  const LayerId x = net.input({image.height, image.width, 3});
  switch (encoder) {
    case Encoder::kVanilla:
      return vanilla_encoder(net, x);
    case Encoder::kVgg:
      return vgg_encoder(net, x);
    case Encoder::kResnet50:
      return resnet50_encoder(net, x);
    case Encoder::kMobilenet:
      return mobilenet_encoder(net, x);
  }
  return {};
}

}  // namespace regen
