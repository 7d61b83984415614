// Small networks for tests and scaling curves, as Checkmate's scripts define them.
#include <array>
#include <string>

#include "regen/models/zoo.h"

namespace regen {
namespace {

// One branch point and one join.
LayerGraph build_test(int) {
  LayerGraph net("test");
  LayerId x = net.input({224, 224, 3});
  constexpr Activation kRelu = Activation::kRelu;
  x = net.conv2d(x, 64, {.kernel = 3, .activation = kRelu, .name = "in_conv"});
  const LayerId left = net.conv2d(x, 128, {.activation = kRelu, .name = "conv1"});
  const LayerId right = net.conv2d(x, 128, {.activation = kRelu, .name = "conv2"});
  x = net.global_average_pool(net.add({left, right}, "add"), "pool");
  net.output(net.dense(x, 1000, {.activation = Activation::kSoftmax, .name = "predictions"}));
  return net;
}

LayerGraph build_linear(int convs) {
  LayerGraph net("linear" + std::to_string(convs));
  LayerId x = net.input({224, 224, 3});
  for (int i = 0; i < convs; ++i) {
    x = net.conv2d(x, 64, {.kernel = 3, .bias = false, .name = "conv" + std::to_string(i)});
  }
  x = net.global_average_pool(x, "pool");
  net.output(net.dense(x, 1000, {.activation = Activation::kSoftmax, .name = "predictions"}));
  return net;
}

constexpr std::size_t kLinears = 32;

// Names live as long as the program, because entries hold pointers to them.
const std::array<std::string, kLinears>& linear_names() {
  static const auto names = [] {
    std::array<std::string, kLinears> result;
    for (std::size_t i = 0; i < kLinears; ++i) result[i] = "linear" + std::to_string(i);
    return result;
  }();
  return names;
}

}  // namespace

std::span<const ZooEntry> synthetic_models() {
  static const auto entries = [] {
    std::array<ZooEntry, kLinears + 1> result;
    result[0] = {"test", "synthetic", "224x224x3", build_test};
    for (std::size_t i = 0; i < kLinears; ++i) {
      result[i + 1] = {linear_names()[i].c_str(), "synthetic", "224x224x3", build_linear,
                       static_cast<int>(i)};
    }
    return result;
  }();
  return entries;
}

}  // namespace regen
