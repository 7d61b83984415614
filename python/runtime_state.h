// Memory that leaves, as Python sees it: state in one arena, and the file that survives a kill.
#pragma once

#include <pybind11/pybind11.h>

namespace regen {

void bind_state(pybind11::module_& module);

}  // namespace regen
