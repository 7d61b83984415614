// An operator on the CPU that chooses its algorithm as PyTorch's convolutions on CUDA do: it has a
// list of algorithms, takes the first whose scratch memory it is given, and remembers it for the
// problem (shape and kind) on the thread that called. One that was remembered is only given up when
// it is refused its memory.
//
//   regen_test::choosy(Tensor x, Tensor w, int kind, bool[1] mask) -> Tensor     x * w + number / 8
//
// The result holds the number of the algorithm that made it.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/base/units.h"

namespace regen::execute {

struct ChoosyAlgorithm {
  Bytes scratch = 0;
  int milliseconds = 0;
};

// By kind.
const std::vector<std::vector<ChoosyAlgorithm>>& choosy_algorithms();

// What this thread remembers is forgotten.
void forget_choosy();

}  // namespace regen::execute
