// The curve of time over bytes from a file: the rows that `regen advise --json` prints.
#pragma once

#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/report/facts.h"

namespace regen::report {

// A list of objects with `budget_bytes`, `cost` (null: no plan was found) and `lower_bound`; what else
// they hold is not read. Ascending in bytes, whatever their order is.
Result<std::vector<CurvePoint>> read_curve(std::string_view text, std::string_view source);

}  // namespace regen::report
