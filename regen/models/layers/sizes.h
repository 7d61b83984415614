// Bytes of a whole batch, without overflow.
#pragma once

#include <cstdint>

#include "regen/base/units.h"
#include "regen/models/layers/layers.h"

namespace regen {

// a * b for values that are not negative, or kMaxBytes + 1 where the product is larger: such a
// size is refused when a graph is built from it.
inline Bytes bounded_product(std::int64_t a, std::int64_t b) {
  if (a == 0 || b == 0) return 0;
  return a > kMaxBytes / b ? kMaxBytes + 1 : a * b;
}

inline Bytes bounded_sum(Bytes a, Bytes b) {
  return a > kMaxBytes - b ? kMaxBytes + 1 : a + b;
}

// The output of a layer for a batch.
inline Bytes output_bytes(const Layer& layer, std::int64_t batch) {
  return bounded_product(bounded_product(num_elements(layer.shape), layer.element_bytes), batch);
}

}  // namespace regen
