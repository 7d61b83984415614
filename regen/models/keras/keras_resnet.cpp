// ResNet (He et al., 2015) and ResNetV2 (2016) as keras.applications of TensorFlow 2.0 has them:
// every convolution with a bias except two of V2's, explicit padding layers, the shortcut first
// in each sum.
#include <array>

#include "regen/models/keras/keras.h"

namespace regen {
namespace {

struct Stack {
  std::int64_t filters;
  int blocks;
};

std::array<Stack, 4> stacks(int layers) {
  return {{{64, 3},
           {128, layers == 152 ? 8 : 4},
           {256, layers == 50    ? 6
                 : layers == 101 ? 23
                                 : 36},
           {512, 3}}};
}

LayerId conv_bn(LayerGraph& net, LayerId x, std::int64_t filters, ConvOptions options, bool relu) {
  const std::string name = options.name;
  options.name = name + "_conv";
  x = net.batch_norm(net.conv2d(x, filters, std::move(options)), {.name = name + "_bn"});
  return relu ? net.relu(x, name + "_relu") : x;
}

LayerId block_v1(LayerGraph& net, LayerId x, std::int64_t filters, std::int64_t stride,
                 bool project, const std::string& name) {
  LayerId shortcut = x;
  if (project) {
    shortcut = conv_bn(net, x, 4 * filters, {.stride = stride, .name = name + "_0"}, false);
  }
  x = conv_bn(net, x, filters, {.stride = stride, .name = name + "_1"}, true);
  x = conv_bn(net, x, filters, {.kernel = 3, .padding = Padding::kSame, .name = name + "_2"}, true);
  x = conv_bn(net, x, 4 * filters, {.name = name + "_3"}, false);
  return net.relu(net.add({shortcut, x}, name + "_add"), name + "_out");
}

LayerId block_v2(LayerGraph& net, LayerId x, std::int64_t filters, std::int64_t stride,
                 bool project, const std::string& name) {
  LayerId active = net.batch_norm(x, {.name = name + "_preact_bn"});
  active = net.relu(active, name + "_preact_relu");
  LayerId shortcut = x;
  if (project) {
    shortcut = net.conv2d(active, 4 * filters, {.stride = stride, .name = name + "_0_conv"});
  } else if (stride > 1) {
    shortcut = net.max_pool2d(x, {.window = 1, .stride = stride, .name = name + "_0_pool"});
  }
  x = conv_bn(net, active, filters, {.bias = false, .name = name + "_1"}, true);
  x = net.zero_pad2d(x, {1, 1, 1, 1}, name + "_2_pad");
  x = conv_bn(net, x, filters, {.kernel = 3, .stride = stride, .bias = false, .name = name + "_2"},
              true);
  x = net.conv2d(x, 4 * filters, {.name = name + "_3_conv"});
  return net.add({shortcut, x}, name + "_out");
}

LayerId head(LayerGraph& net, LayerId x) {
  x = net.global_average_pool(x, "avg_pool");
  return net.dense(x, 1000, {.activation = Activation::kSoftmax, .name = "probs"});
}

}  // namespace

LayerGraph build_resnet(int layers) {
  LayerGraph net("ResNet" + std::to_string(layers));
  LayerId x = net.zero_pad2d(net.input({224, 224, 3}), {3, 3, 3, 3}, "conv1_pad");
  x = conv_bn(net, x, 64, {.kernel = 7, .stride = 2, .name = "conv1"}, true);
  x = net.zero_pad2d(x, {1, 1, 1, 1}, "pool1_pad");
  x = net.max_pool2d(x, {.window = 3, .stride = 2, .name = "pool1_pool"});
  int number = 2;
  for (const Stack& stack : stacks(layers)) {
    for (int i = 1; i <= stack.blocks; ++i) {
      const std::int64_t stride = i == 1 && number > 2 ? 2 : 1;
      x = block_v1(net, x, stack.filters, stride, /*project=*/i == 1,
                   "conv" + std::to_string(number) + "_block" + std::to_string(i));
    }
    ++number;
  }
  net.output(head(net, x));
  return net;
}

LayerGraph build_resnet_v2(int layers) {
  LayerGraph net("ResNet" + std::to_string(layers) + "V2");
  LayerId x = net.zero_pad2d(net.input({224, 224, 3}), {3, 3, 3, 3}, "conv1_pad");
  x = net.conv2d(x, 64, {.kernel = 7, .stride = 2, .name = "conv1_conv"});
  x = net.zero_pad2d(x, {1, 1, 1, 1}, "pool1_pad");
  x = net.max_pool2d(x, {.window = 3, .stride = 2, .name = "pool1_pool"});
  int number = 2;
  for (const Stack& stack : stacks(layers)) {
    for (int i = 1; i <= stack.blocks; ++i) {
      // V2 shrinks in the last block of a stack, and never in the last stack.
      const std::int64_t stride = i == stack.blocks && number < 5 ? 2 : 1;
      x = block_v2(net, x, stack.filters, stride, /*project=*/i == 1,
                   "conv" + std::to_string(number) + "_block" + std::to_string(i));
    }
    ++number;
  }
  x = net.relu(net.batch_norm(x, {.name = "post_bn"}), "post_relu");
  net.output(head(net, x));
  return net;
}

}  // namespace regen
