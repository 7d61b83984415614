// A Python batch as a tree with tensors beside it, and back.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "regen/share/input/batch_layout.h"

namespace regen {

// The tensors in the order in which they stand in the tree.
struct TakenBatch {
  share::BatchNode root;
  std::vector<at::Tensor> tensors;
  std::uint64_t data_bytes = 0;
};

// Tensors, numbers, text, None, and tuples, lists and mappings of them; anything else is an error
// that names its place.
TakenBatch take_batch(pybind11::handle batch);

// Dense, at the places that the tree says.
void write_tensors(const TakenBatch& batch, char* data);

// `tensor_at` makes the tensor of a leaf.
pybind11::object make_batch(const share::BatchNode& node,
                            const std::function<at::Tensor(const share::BatchNode&)>& tensor_at);

c10::ScalarType scalar_type(share::ElementType type);

}  // namespace regen
