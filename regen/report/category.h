// What the bytes of a tensor are for, as a report stacks them.
#pragma once

#include <cstdint>
#include <string_view>

#include "regen/graph/graph.h"

namespace regen::report {

enum class Category : std::uint8_t {
  kInput,      // what the caller brings for the step
  kParameter,  // what is trained
  kOptimizer,  // its state, and what an update makes on the way
  kBuffer,     // state of the model, constants, and what the runtime holds for the whole step
  kGradient,
  kActivation,  // made by the forward pass or the loss
};
inline constexpr std::size_t kNumCategories = 6;

std::string_view to_string(Category category);

// Of state, that which the backward pass writes is gradients (of a wrapped module, or of several batches),
// and of the rest that which an update reads or changes is the optimizer's. A gradient that leaves the step
// as an output is a gradient.
IdVector<TensorId, Category> categories(const Graph& graph);

}  // namespace regen::report
