// What a run has measured, from a file: what `regen run --json` prints.
#pragma once

#include <string_view>

#include "regen/base/result.h"
#include "regen/report/facts.h"

namespace regen::report {

// An object with `measured_peak_bytes`, `measured_seconds` or both; what else it holds is not read.
Result<Measured> read_measured(std::string_view text, std::string_view source);

}  // namespace regen::report
