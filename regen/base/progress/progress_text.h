// Progress in words: "planning 3.2 s, best 12.3 ms, +4.1 % over keeping everything, at least 12.0 ms".
#pragma once

#include <cstddef>
#include <string>

#include "regen/base/progress/progress.h"

namespace regen {

// What matters most comes first, and what does not fit into `width` columns is left out.
std::string progress_text(const ProgressState& state, std::size_t width);

}  // namespace regen
