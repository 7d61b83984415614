// The Python of this installation: pictures and the examination of the installation are made with it.
#pragma once

#include <string>

namespace regen::cli {

// REGEN_PYTHON, else that of the environment the program was built or installed with, else python3.
std::string python_interpreter();

// PYTHONPATH=..., with the packages that belong to this program first.
std::string python_path();

}  // namespace regen::cli
