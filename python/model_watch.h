// What must not change under a captured step, looked at before every step: in C++, because the
// device waits meanwhile when the caller waits for each step.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace regen {

// Modules with their mode and hooks, and which parameters train. Two models that a captured step
// fits alike give the same bytes.
std::string module_structure(pybind11::handle model);

}  // namespace regen
