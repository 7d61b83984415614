#include "regen/models/keras.h"

#include <array>

#include "regen/models/zoo.h"

namespace regen {

std::span<const ZooEntry> keras_models() {
  static constexpr std::array<ZooEntry, 2> kEntries = {{
      {"VGG16", "keras", "224x224x3", build_vgg, 16},
      {"VGG19", "keras", "224x224x3", build_vgg, 19},
  }};
  return kEntries;
}

}  // namespace regen
