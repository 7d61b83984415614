// Shared input for Python: batches of tensors into slots and out of them.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace regen {

void bind_feed(pybind11::module_& module);

}  // namespace regen
