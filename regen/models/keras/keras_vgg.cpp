// VGG16 and VGG19 (Simonyan and Zisserman, 2014) as keras.applications has them.
#include "regen/models/keras/keras.h"

namespace regen {

LayerGraph build_vgg(int layers) {
  LayerGraph net(layers == 16 ? "VGG16" : "VGG19");
  constexpr std::int64_t kFilters[] = {64, 128, 256, 512, 512};
  LayerId x = net.input({224, 224, 3});
  for (int block = 1; block <= 5; ++block) {
    const std::string prefix = "block" + std::to_string(block);
    const int convs = block <= 2 ? 2 : layers == 16 ? 3 : 4;
    for (int conv = 1; conv <= convs; ++conv) {
      x = net.conv2d(x, kFilters[block - 1],
                     {.kernel = 3,
                      .padding = Padding::kSame,
                      .activation = Activation::kRelu,
                      .name = prefix + "_conv" + std::to_string(conv)});
    }
    x = net.max_pool2d(x, {.name = prefix + "_pool"});
  }
  x = net.flatten(x, "flatten");
  x = net.dense(x, 4096, {.activation = Activation::kRelu, .name = "fc1"});
  x = net.dense(x, 4096, {.activation = Activation::kRelu, .name = "fc2"});
  net.output(net.dense(x, 1000, {.activation = Activation::kSoftmax, .name = "predictions"}));
  return net;
}

}  // namespace regen
