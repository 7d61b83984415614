// DenseNet (Huang et al., 2016) as keras.applications of TensorFlow 2.0 has it.
#include <array>

#include "regen/models/keras/keras.h"

namespace regen {
namespace {

LayerId bn_relu(LayerGraph& net, LayerId x, const std::string& name) {
  return net.relu(net.batch_norm(x, {.name = name + "_bn"}), name + "_relu");
}

LayerId dense_block(LayerGraph& net, LayerId x, int layers, const std::string& name) {
  constexpr std::int64_t kGrowth = 32;
  for (int i = 1; i <= layers; ++i) {
    const std::string block = name + "_block" + std::to_string(i);
    LayerId fresh = bn_relu(net, x, block + "_0");
    fresh = net.conv2d(fresh, 4 * kGrowth, {.bias = false, .name = block + "_1_conv"});
    fresh = bn_relu(net, fresh, block + "_1");
    fresh = net.conv2d(
        fresh, kGrowth,
        {.kernel = 3, .padding = Padding::kSame, .bias = false, .name = block + "_2_conv"});
    x = net.concat({x, fresh}, block + "_concat");
  }
  return x;
}

LayerId transition(LayerGraph& net, LayerId x, const std::string& name) {
  x = bn_relu(net, x, name);
  x = net.conv2d(x, net.channels(x) / 2, {.bias = false, .name = name + "_conv"});
  return net.average_pool2d(x, {.name = name + "_pool"});
}

std::array<int, 4> block_sizes(int layers) {
  if (layers == 121) return {6, 12, 24, 16};
  if (layers == 169) return {6, 12, 32, 32};
  return {6, 12, 48, 32};
}

}  // namespace

LayerGraph build_densenet(int layers) {
  LayerGraph net("DenseNet" + std::to_string(layers));
  const std::array<int, 4> blocks = block_sizes(layers);
  LayerId x = net.zero_pad2d(net.input({224, 224, 3}), {3, 3, 3, 3}, "zero_padding2d");
  x = net.conv2d(x, 64, {.kernel = 7, .stride = 2, .bias = false, .name = "conv1/conv"});
  x = net.relu(net.batch_norm(x, {.name = "conv1/bn"}), "conv1/relu");
  x = net.zero_pad2d(x, {1, 1, 1, 1}, "zero_padding2d_1");
  x = net.max_pool2d(x, {.window = 3, .stride = 2, .name = "pool1"});
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    x = dense_block(net, x, blocks[i], "conv" + std::to_string(i + 2));
    if (i < 3) x = transition(net, x, "pool" + std::to_string(i + 2));
  }
  x = net.relu(net.batch_norm(x, {.name = "bn"}), "relu");
  x = net.global_average_pool(x, "avg_pool");
  net.output(net.dense(x, 1000, {.activation = Activation::kSoftmax, .name = "fc1000"}));
  return net;
}

}  // namespace regen
