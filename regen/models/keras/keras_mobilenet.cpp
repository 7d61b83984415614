// MobileNet (Howard et al., 2017) and MobileNetV2 (Sandler et al., 2018) as keras.applications
// of TensorFlow 2.0 has them: explicit one-sided padding before every stride of 2.
#include "regen/models/keras/keras.h"

namespace regen {
namespace {

constexpr Border kOneSided = {.top = 0, .bottom = 1, .left = 0, .right = 1};

LayerId bn_relu6(LayerGraph& net, LayerId x, const std::string& bn, const std::string& relu) {
  return net.activation(net.batch_norm(x, {.name = bn}), Activation::kRelu6, relu);
}

LayerId depthwise_block(LayerGraph& net, LayerId x, std::int64_t filters, std::int64_t stride,
                        int number) {
  const std::string id = std::to_string(number);
  if (stride == 2) x = net.zero_pad2d(x, kOneSided, "conv_pad_" + id);
  x = net.depthwise_conv2d(x, {.kernel = 3,
                               .stride = stride,
                               .padding = stride == 1 ? Padding::kSame : Padding::kValid,
                               .bias = false,
                               .name = "conv_dw_" + id});
  x = bn_relu6(net, x, "conv_dw_" + id + "_bn", "conv_dw_" + id + "_relu");
  x = net.conv2d(x, filters, {.bias = false, .name = "conv_pw_" + id});
  return bn_relu6(net, x, "conv_pw_" + id + "_bn", "conv_pw_" + id + "_relu");
}

LayerGraph build_v1() {
  LayerGraph net("MobileNet");
  LayerId x = net.zero_pad2d(net.input({224, 224, 3}), kOneSided, "conv1_pad");
  x = net.conv2d(x, 32, {.kernel = 3, .stride = 2, .bias = false, .name = "conv1"});
  x = bn_relu6(net, x, "conv1_bn", "conv1_relu");
  constexpr std::int64_t kFilters[] = {64,  128, 128, 256, 256,  512, 512,
                                       512, 512, 512, 512, 1024, 1024};
  int number = 1;
  for (std::int64_t filters : kFilters) {
    const bool shrink = number == 2 || number == 4 || number == 6 || number == 12;
    x = depthwise_block(net, x, filters, shrink ? 2 : 1, number);
    ++number;
  }
  x = net.global_average_pool(x, "global_average_pooling2d");
  x = net.dropout(net.reshape(x, {1, 1, 1024}, "reshape_1"), "dropout");
  x = net.conv2d(x, 1000, {.padding = Padding::kSame, .name = "conv_preds"});
  x = net.reshape(x, {1000}, "reshape_2");
  net.output(net.activation(x, Activation::kSoftmax, "act_softmax"));
  return net;
}

LayerId inverted_block(LayerGraph& net, LayerId inputs, std::int64_t filters, std::int64_t stride,
                       int number) {
  const std::int64_t channels = net.channels(inputs);
  const std::string prefix =
      number == 0 ? "expanded_conv_" : "block_" + std::to_string(number) + "_";
  LayerId x = inputs;
  if (number > 0) {
    x = net.conv2d(x, 6 * channels, {.bias = false, .name = prefix + "expand"});
    x = bn_relu6(net, x, prefix + "expand_BN", prefix + "expand_relu");
  }
  if (stride == 2) x = net.zero_pad2d(x, kOneSided, prefix + "pad");
  x = net.depthwise_conv2d(x, {.kernel = 3,
                               .stride = stride,
                               .padding = stride == 1 ? Padding::kSame : Padding::kValid,
                               .bias = false,
                               .name = prefix + "depthwise"});
  x = bn_relu6(net, x, prefix + "depthwise_BN", prefix + "depthwise_relu");
  x = net.conv2d(x, filters, {.bias = false, .name = prefix + "project"});
  x = net.batch_norm(x, {.name = prefix + "project_BN"});
  if (channels == filters && stride == 1) return net.add({inputs, x}, prefix + "add");
  return x;
}

LayerGraph build_v2() {
  LayerGraph net("MobileNetV2");
  LayerId x = net.zero_pad2d(net.input({224, 224, 3}), kOneSided, "Conv1_pad");
  x = net.conv2d(x, 32, {.kernel = 3, .stride = 2, .bias = false, .name = "Conv1"});
  x = bn_relu6(net, x, "bn_Conv1", "Conv1_relu");
  struct Stage {
    std::int64_t filters;
    int blocks;
    std::int64_t stride;
  };
  constexpr Stage kStages[] = {{16, 1, 1}, {24, 2, 2},  {32, 3, 2}, {64, 4, 2},
                               {96, 3, 1}, {160, 3, 2}, {320, 1, 1}};
  int number = 0;
  for (const Stage& stage : kStages) {
    for (int i = 0; i < stage.blocks; ++i) {
      x = inverted_block(net, x, stage.filters, i == 0 ? stage.stride : 1, number++);
    }
  }
  x = net.conv2d(x, 1280, {.bias = false, .name = "Conv_1"});
  x = bn_relu6(net, x, "Conv_1_bn", "out_relu");
  x = net.global_average_pool(x, "global_average_pooling2d");
  net.output(net.dense(x, 1000, {.activation = Activation::kSoftmax, .name = "Logits"}));
  return net;
}

}  // namespace

LayerGraph build_mobilenet(int version) {
  return version == 1 ? build_v1() : build_v2();
}

}  // namespace regen
