#include "regen/models/zoo.h"

namespace regen {

std::span<const ZooEntry> segmentation_models() { return {}; }

}  // namespace regen
