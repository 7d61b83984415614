// Xception (Chollet, 2016) as keras.applications has it.
#include "regen/models/keras/keras.h"

namespace regen {
namespace {

struct Step {
  std::int64_t filters;
  bool relu_before;
};

LayerId separable(LayerGraph& net, LayerId x, std::int64_t filters, const std::string& name) {
  x = net.separable_conv2d(x, filters,
                           {.kernel = 3, .padding = Padding::kSame, .bias = false, .name = name});
  return net.batch_norm(x, {.name = name + "_bn"});
}

// Separable convolutions with a relu before each (the first one's is optional).
LayerId separable_steps(LayerGraph& net, LayerId x, const std::vector<Step>& steps, int block) {
  const std::string prefix = "block" + std::to_string(block) + "_sepconv";
  int number = 1;
  for (const Step& step : steps) {
    const std::string name = prefix + std::to_string(number++);
    if (step.relu_before) x = net.relu(x, name + "_act");
    x = separable(net, x, step.filters, name);
  }
  return x;
}

// The output has half the size; the shortcut is a strided 1x1 convolution.
LayerId shrinking_block(LayerGraph& net, LayerId x, Step first, std::int64_t filters, int block) {
  LayerId shortcut =
      net.conv2d(x, filters, {.stride = 2, .padding = Padding::kSame, .bias = false});
  shortcut = net.batch_norm(shortcut);
  x = separable_steps(net, x, {first, {filters, true}}, block);
  x = net.max_pool2d(x, {.window = 3,
                         .stride = 2,
                         .padding = Padding::kSame,
                         .name = "block" + std::to_string(block) + "_pool"});
  return net.add({x, shortcut});
}

}  // namespace

LayerGraph build_xception(int) {
  LayerGraph net("Xception");
  LayerId x = net.conv2d(net.input({299, 299, 3}), 32,
                         {.kernel = 3, .stride = 2, .bias = false, .name = "block1_conv1"});
  x = net.relu(net.batch_norm(x, {.name = "block1_conv1_bn"}), "block1_conv1_act");
  x = net.conv2d(x, 64, {.kernel = 3, .bias = false, .name = "block1_conv2"});
  x = net.relu(net.batch_norm(x, {.name = "block1_conv2_bn"}), "block1_conv2_act");
  x = shrinking_block(net, x, {128, false}, 128, 2);
  x = shrinking_block(net, x, {256, true}, 256, 3);
  x = shrinking_block(net, x, {728, true}, 728, 4);
  for (int block = 5; block <= 12; ++block) {
    const LayerId inner = separable_steps(net, x, {{728, true}, {728, true}, {728, true}}, block);
    x = net.add({inner, x});
  }
  x = shrinking_block(net, x, {728, true}, 1024, 13);
  x = net.relu(separable(net, x, 1536, "block14_sepconv1"), "block14_sepconv1_act");
  x = net.relu(separable(net, x, 2048, "block14_sepconv2"), "block14_sepconv2_act");
  x = net.global_average_pool(x, "avg_pool");
  net.output(net.dense(x, 1000, {.activation = Activation::kSoftmax, .name = "predictions"}));
  return net;
}

}  // namespace regen
