// Pictures, drawn by the Python package regen_plot in a child process.
#pragma once

#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/base/result.h"

namespace regen::cli {

// The extension of `path` if it is one of `allowed`, such as "png"; letter case ignored.
Result<std::string> picture_format(const std::string& path,
                                   const std::vector<std::string>& allowed);

// Draws `kind` ("schedule" or "sweep") from `data` into the file, which appears whole or not at
// all. An error of kind kMissing when the interpreter or a library is not installed.
Status draw_plot(const std::string& kind, const Json& data, const std::string& format,
                 const std::string& path);

}  // namespace regen::cli
