// The networks of keras_segmentation (divamgupta's, in the fork that Checkmate used), except the
// pyramids: FCN, U-Net, SegNet.
#include "regen/models/segmentation/segmentation.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "regen/models/zoo.h"

namespace regen {
namespace {

Size2 default_image(Encoder encoder) {
  return encoder == Encoder::kMobilenet ? Size2{224, 224} : Size2{416, 608};
}

std::string suffixed(const char* base, Encoder encoder) {
  const std::string name = encoder_name(encoder);
  return name.empty() ? base : base + ("_" + name);
}

std::string prefixed(const char* base, Encoder encoder) {
  const std::string name = encoder_name(encoder);
  return name.empty() ? base : name + "_" + base;
}

// Two large convolutions in the place of dense layers, then class scores.
LayerId fcn_head(LayerGraph& net, LayerId x) {
  x = net.conv2d(x, 4096,
                 {.kernel = 7, .padding = Padding::kSame, .activation = Activation::kRelu});
  x = net.dropout(x);
  x = net.conv2d(x, 4096, {.activation = Activation::kRelu});
  return net.conv2d(net.dropout(x), kSegmentationClasses);
}

LayerId enlarge(LayerGraph& net, LayerId x, std::int64_t factor) {
  return net.conv2d_transpose(x, kSegmentationClasses,
                              {.kernel = 2 * factor, .stride = factor, .bias = false});
}

// Cuts whichever of the two is larger, first in width, then in height. The second is cut (by
// nothing) when they are equal, so there are always two cropping layers.
void crop_to_match(LayerGraph& net, LayerId& a, LayerId& b) {
  const std::int64_t width = net.shape(a)[1] - net.shape(b)[1];
  const std::int64_t height = net.shape(a)[0] - net.shape(b)[0];
  LayerId& wider = width > 0 ? a : b;
  wider = net.cropping2d(wider, {.right = std::abs(width)});
  LayerId& taller = height > 0 ? a : b;
  taller = net.cropping2d(taller, {.bottom = std::abs(height)});
}

LayerId padded_conv_bn(LayerGraph& net, LayerId x, std::int64_t filters) {
  x = net.conv2d(net.zero_pad2d(x, {1, 1, 1, 1}), filters, {.kernel = 3});
  return net.batch_norm(x);
}

// U-Net's decoder; without the joins it is SegNet's.
LayerGraph build_decoder(LayerGraph net, Encoder encoder, bool join) {
  const Taps f = add_encoder(net, encoder, default_image(encoder));
  LayerId x = padded_conv_bn(net, f[3], 512);
  constexpr std::int64_t kFilters[] = {256, 128, 64};
  std::size_t tap = 3;
  for (std::int64_t filters : kFilters) {
    x = net.up_sampling2d(x, 2);
    --tap;
    if (join) x = net.concat({x, f[tap]});
    x = padded_conv_bn(net, x, filters);
  }
  x = net.conv2d(x, kSegmentationClasses, {.kernel = 3, .padding = Padding::kSame});
  add_segmentation_output(net, x);
  return net;
}

}  // namespace

const char* encoder_name(Encoder encoder) {
  constexpr std::array kNames = {"", "vgg", "resnet50", "mobilenet"};
  return kNames[static_cast<std::size_t>(encoder)];
}

void add_segmentation_output(LayerGraph& net, LayerId scores) {
  const Shape shape = net.shape(scores);
  const LayerId rows = net.reshape(scores, {-1, shape.back()});
  net.output(net.activation(rows, Activation::kSoftmax));
}

LayerGraph build_fcn_8(int variant) {
  const auto encoder = static_cast<Encoder>(variant);
  LayerGraph net(suffixed("fcn_8", encoder));
  const Taps f = add_encoder(net, encoder, default_image(encoder));
  LayerId x = enlarge(net, fcn_head(net, f[4]), 2);
  LayerId f4 = net.conv2d(f[3], kSegmentationClasses);
  crop_to_match(net, x, f4);
  x = enlarge(net, net.add({x, f4}), 2);
  LayerId f3 = net.conv2d(f[2], kSegmentationClasses);
  crop_to_match(net, f3, x);
  x = enlarge(net, net.add({f3, x}), 8);
  add_segmentation_output(net, x);
  return net;
}

LayerGraph build_fcn_32(int variant) {
  const auto encoder = static_cast<Encoder>(variant);
  LayerGraph net(suffixed("fcn_32", encoder));
  const Taps f = add_encoder(net, encoder, default_image(encoder));
  add_segmentation_output(net, enlarge(net, fcn_head(net, f[4]), 32));
  return net;
}

LayerGraph build_unet(int variant) {
  const auto encoder = static_cast<Encoder>(variant);
  return build_decoder(LayerGraph(prefixed("unet", encoder)), encoder, /*join=*/true);
}

LayerGraph build_segnet(int variant) {
  const auto encoder = static_cast<Encoder>(variant);
  return build_decoder(LayerGraph(prefixed("segnet", encoder)), encoder, /*join=*/false);
}

LayerGraph build_unet_mini(int) {
  LayerGraph net("unet_mini");
  const auto pair = [&](LayerId x, std::int64_t filters) {
    const ConvOptions options{
        .kernel = 3, .padding = Padding::kSame, .activation = Activation::kRelu};
    x = net.dropout(net.conv2d(x, filters, options));
    return net.conv2d(x, filters, options);
  };
  const LayerId conv1 = pair(net.input({360, 480, 3}), 32);
  const LayerId conv2 = pair(net.max_pool2d(conv1), 64);
  const LayerId conv3 = pair(net.max_pool2d(conv2), 128);
  const LayerId conv4 = pair(net.concat({net.up_sampling2d(conv3, 2), conv2}), 64);
  const LayerId conv5 = pair(net.concat({net.up_sampling2d(conv4, 2), conv1}), 32);
  add_segmentation_output(net, net.conv2d(conv5, kSegmentationClasses));
  return net;
}

std::span<const ZooEntry> segmentation_models() {
  constexpr int kVanilla = static_cast<int>(Encoder::kVanilla);
  constexpr int kVgg = static_cast<int>(Encoder::kVgg);
  constexpr int kResnet50 = static_cast<int>(Encoder::kResnet50);
  constexpr int kMobilenet = static_cast<int>(Encoder::kMobilenet);
  static constexpr std::array<ZooEntry, 22> kEntries = {{
      {"fcn_8", "segmentation", "416x608x3", build_fcn_8, kVanilla},
      {"fcn_32", "segmentation", "416x608x3", build_fcn_32, kVanilla},
      {"fcn_8_vgg", "segmentation", "416x608x3", build_fcn_8, kVgg},
      {"fcn_32_vgg", "segmentation", "416x608x3", build_fcn_32, kVgg},
      {"fcn_8_resnet50", "segmentation", "416x608x3", build_fcn_8, kResnet50},
      {"fcn_32_resnet50", "segmentation", "416x608x3", build_fcn_32, kResnet50},
      {"fcn_8_mobilenet", "segmentation", "224x224x3", build_fcn_8, kMobilenet},
      {"fcn_32_mobilenet", "segmentation", "224x224x3", build_fcn_32, kMobilenet},
      {"unet", "segmentation", "416x608x3", build_unet, kVanilla},
      {"vgg_unet", "segmentation", "416x608x3", build_unet, kVgg},
      {"resnet50_unet", "segmentation", "416x608x3", build_unet, kResnet50},
      {"mobilenet_unet", "segmentation", "224x224x3", build_unet, kMobilenet},
      {"unet_mini", "segmentation", "360x480x3", build_unet_mini, 0},
      {"segnet", "segmentation", "416x608x3", build_segnet, kVanilla},
      {"vgg_segnet", "segmentation", "416x608x3", build_segnet, kVgg},
      {"resnet50_segnet", "segmentation", "416x608x3", build_segnet, kResnet50},
      {"mobilenet_segnet", "segmentation", "224x224x3", build_segnet, kMobilenet},
      {"pspnet", "segmentation", "384x576x3", build_pspnet, kVanilla},
      {"vgg_pspnet", "segmentation", "384x576x3", build_pspnet, kVgg},
      {"resnet50_pspnet", "segmentation", "384x576x3", build_pspnet, kResnet50},
      {"pspnet_50", "segmentation", "473x473x3", build_deep_pspnet, 50},
      {"pspnet_101", "segmentation", "473x473x3", build_deep_pspnet, 101},
  }};
  return kEntries;
}

}  // namespace regen
