// What must not change under a captured program, looked at before every step: in C++, because the
// device waits meanwhile when the caller waits for each step.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <string>
#include <vector>

namespace regen {

// Modules with their mode and hooks, and which parameters train. Two models that a captured program
// fits alike give the same bytes.
std::string module_structure(pybind11::handle model);

// Shape, strides and type of some tensors, as they were.
class TensorLayouts {
 public:
  void add(const at::Tensor& tensor);
  // The first one that looks otherwise now, or -1.
  std::ptrdiff_t first_change(const std::vector<at::Tensor>& tensors) const;

 private:
  struct Layout {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    at::ScalarType type;
  };
  std::vector<Layout> layouts_;
};

}  // namespace regen
