// What a step leaves behind, for comparing runs: its results, what it changed, and the state of the
// random generator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/runtime/prepared_step.h"

namespace regen::cli {

struct LeftTensor {
  std::string kind;  // "output", "gradient", "parameter", "buffer", "state" or "generator"
  std::string name;
  at::Tensor tensor;  // on the host, contiguous
};

// `result` gives the program's results by their index.
std::vector<LeftTensor> left_behind(const PreparedStep& prepared,
                                    const std::function<at::Tensor(std::size_t)>& result);

// Of the contents; equal bytes have equal sums.
std::uint64_t checksum(const at::Tensor& tensor);
// Of all of them, in order.
std::uint64_t checksum(const std::vector<LeftTensor>& tensors);
std::string hex(std::uint64_t sum);

// Empty when the bits are the same; else the first tensor that differs, and by how much.
std::string first_difference(const std::vector<LeftTensor>& expected,
                             const std::vector<LeftTensor>& found);

}  // namespace regen::cli
