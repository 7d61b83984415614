// The part of the module regen._runtime that shares a device with other processes.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace regen {

void bind_share(pybind11::module_& module);

}  // namespace regen
