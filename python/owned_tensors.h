// The tensors that a captured step shares with its caller, looked up, compared and bound before
// every step: in C++ and all at once, because the device may have nothing else to do meanwhile.
#pragma once

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <vector>

#include "python/runtime_session.h"

namespace regen {

// What is expected of each. Where they are found stays with Python, whose collector must see it.
class OwnedTensors {
 public:
  // The tensor's shape, strides and type may not change. `same`: it may not be replaced either.
  void add(std::size_t storage, const at::Tensor& tensor, bool same);
  // Of `places`, one for each tensor: a dictionary and a key; or an object whose `optimizer` has
  // the state, and a parameter with a key. `expected`: the tensors as they were added. Binds all,
  // or returns the number of the first that is missing or not as expected, and binds none; else -1.
  std::ptrdiff_t bind(RuntimeSession& session, const pybind11::list& places,
                      const pybind11::list& expected) const;
  // The first of these that has another shape, strides or type now, or -1.
  std::ptrdiff_t first_change(const std::vector<at::Tensor>& tensors) const;

 private:
  struct Expected {
    std::size_t storage;
    std::int64_t offset;
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    at::ScalarType type;
    bool same;

    bool fits(const at::Tensor& tensor) const;
  };
  std::vector<Expected> tensors_;
};

}  // namespace regen
