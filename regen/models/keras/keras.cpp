#include "regen/models/keras/keras.h"

#include <array>

#include "regen/models/zoo.h"

namespace regen {

std::span<const ZooEntry> keras_models() {
  static constexpr std::array<ZooEntry, 17> kEntries = {{
      {"VGG16", "keras", "224x224x3", build_vgg, 16},
      {"VGG19", "keras", "224x224x3", build_vgg, 19},
      {"ResNet50", "keras", "224x224x3", build_resnet, 50},
      {"ResNet101", "keras", "224x224x3", build_resnet, 101},
      {"ResNet152", "keras", "224x224x3", build_resnet, 152},
      {"ResNet50V2", "keras", "224x224x3", build_resnet_v2, 50},
      {"ResNet101V2", "keras", "224x224x3", build_resnet_v2, 101},
      {"ResNet152V2", "keras", "224x224x3", build_resnet_v2, 152},
      {"MobileNet", "keras", "224x224x3", build_mobilenet, 1},
      {"MobileNetV2", "keras", "224x224x3", build_mobilenet, 2},
      {"DenseNet121", "keras", "224x224x3", build_densenet, 121},
      {"DenseNet169", "keras", "224x224x3", build_densenet, 169},
      {"DenseNet201", "keras", "224x224x3", build_densenet, 201},
      {"NASNetMobile", "keras", "224x224x3", build_nasnet, 0},
      {"NASNetLarge", "keras", "331x331x3", build_nasnet, 1},
      {"InceptionV3", "keras", "299x299x3", build_inception_v3, 0},
      {"Xception", "keras", "299x299x3", build_xception, 0},
  }};
  return kEntries;
}

}  // namespace regen
