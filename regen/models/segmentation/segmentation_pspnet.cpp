// Pyramid scene parsing (Zhao et al., 2016): keras_segmentation's own form on its encoders, and
// the dilated ResNet of 50 or 101 layers after the authors' networks.
#include <string>
#include <vector>

#include "regen/models/segmentation/segmentation.h"

namespace regen {
namespace {

LayerId conv_bn(LayerGraph& net, LayerId x, std::int64_t filters, ConvOptions options) {
  const std::string bn = options.name.empty() ? "" : options.name + "_bn";
  options.bias = false;
  return net.batch_norm(net.conv2d(x, filters, std::move(options)), {.name = bn});
}

LayerId conv_bn_relu(LayerGraph& net, LayerId x, std::int64_t filters, ConvOptions options) {
  return net.relu(conv_bn(net, x, filters, std::move(options)));
}

std::int64_t rounded_quotient(std::int64_t size, std::int64_t parts) {
  // As numpy rounds: a half goes to the even neighbour.
  const std::int64_t quotient = size / parts;
  const std::int64_t twice_rest = 2 * (size % parts);
  if (twice_rest != parts) return quotient + (twice_rest > parts ? 1 : 0);
  return quotient + quotient % 2;
}

// Averages over parts of the image and spreads the result over the whole again.
LayerId pool_branch(LayerGraph& net, LayerId x, std::int64_t parts) {
  const Size2 window{rounded_quotient(net.shape(x)[0], parts),
                     rounded_quotient(net.shape(x)[1], parts)};
  LayerId y = net.average_pool2d(x, {.window = window, .padding = Padding::kSame});
  y = conv_bn_relu(net, y, 512, {});
  return net.resize(y, {net.shape(y)[0] * window.height, net.shape(y)[1] * window.width});
}

LayerId bottleneck(LayerGraph& net, LayerId x, std::int64_t level, std::int64_t dilation,
                   std::int64_t stride, bool project, const std::string& id) {
  x = net.relu(x);
  LayerId y = conv_bn_relu(net, x, 64 * level, {.stride = stride, .name = id + "_1x1_reduce"});
  y = net.zero_pad2d(y, {dilation, dilation, dilation, dilation});
  y = conv_bn_relu(net, y, 64 * level, {.kernel = 3, .dilation = dilation, .name = id + "_3x3"});
  y = conv_bn(net, y, 256 * level, {.name = id + "_1x1_increase"});
  if (project) x = conv_bn(net, x, 256 * level, {.stride = stride, .name = id + "_1x1_proj"});
  return net.add({y, x});
}

LayerId dilated_resnet(LayerGraph& net, LayerId x, int layers) {
  const ConvOptions same{.kernel = 3, .padding = Padding::kSame};
  ConvOptions first = same;
  first.stride = 2;
  first.name = "conv1_1_3x3_s2";
  x = conv_bn_relu(net, x, 64, first);
  x = conv_bn_relu(net, x, 64, same);
  x = conv_bn_relu(net, x, 128, same);
  x = net.max_pool2d(x, {.window = 3, .stride = 2, .padding = Padding::kSame});
  struct Stage {
    std::int64_t level;
    std::int64_t dilation;
    int blocks;
  };
  const Stage stages[] = {{1, 1, 3}, {2, 1, 4}, {4, 2, layers == 50 ? 6 : 23}, {8, 4, 3}};
  int number = 2;
  for (const Stage& stage : stages) {
    for (int i = 1; i <= stage.blocks; ++i) {
      const std::string id = "conv" + std::to_string(number) + "_" + std::to_string(i);
      const std::int64_t stride = number == 3 && i == 1 ? 2 : 1;
      x = bottleneck(net, x, stage.level, stage.dilation, stride, i == 1, id);
    }
    ++number;
  }
  return net.relu(x);
}

}  // namespace

LayerGraph build_pspnet(int variant) {
  const auto encoder = static_cast<Encoder>(variant);
  const std::string prefix = encoder_name(encoder);
  LayerGraph net(prefix.empty() ? "pspnet" : prefix + "_pspnet");
  const LayerId f5 = add_encoder(net, encoder, {384, 576})[4];
  std::vector<LayerId> branches = {f5};
  for (std::int64_t parts : {1, 2, 3, 6}) branches.push_back(pool_branch(net, f5, parts));
  LayerId x = conv_bn_relu(net, net.concat(branches), 512, {});
  x = net.conv2d(x, kSegmentationClasses, {.kernel = 3, .padding = Padding::kSame});
  x = net.resize(x, {8 * net.shape(x)[0], 8 * net.shape(x)[1]});
  add_segmentation_output(net, x);
  return net;
}

LayerGraph build_deep_pspnet(int layers) {
  LayerGraph net("pspnet_" + std::to_string(layers));
  constexpr std::int64_t kImage = 473;
  constexpr std::int64_t kFeatures = (kImage + 7) / 8;  // 60
  const LayerId features = dilated_resnet(net, net.input({kImage, kImage, 3}), layers);
  std::vector<LayerId> branches = {features};
  for (std::int64_t parts : {6, 3, 2, 1}) {
    LayerId y = net.average_pool2d(features, {.window = kFeatures / parts});
    y = conv_bn_relu(net, y, 512, {.name = "conv5_3_pool" + std::to_string(parts) + "_conv"});
    branches.push_back(net.resize(y, kFeatures));
  }
  LayerId x = conv_bn_relu(net, net.concat(branches), 512,
                           {.kernel = 3, .padding = Padding::kSame, .name = "conv5_4"});
  x = net.conv2d(net.dropout(x), kSegmentationClasses, {.name = "conv6"});
  add_segmentation_output(net, net.resize(x, kImage));
  return net;
}

}  // namespace regen
