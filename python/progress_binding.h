// Progress for Python: work that Python does, events of all work, and the line on the terminal.
#pragma once

#include <pybind11/pybind11.h>

namespace regen {

void bind_progress(pybind11::module_& module);

}  // namespace regen
