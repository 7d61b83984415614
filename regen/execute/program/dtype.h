// The names of element types in files.
#pragma once

#include <c10/core/ScalarType.h>

#include <string_view>

#include "regen/base/result.h"

namespace regen::execute {

Result<c10::ScalarType> parse_dtype(std::string_view name);  // "float32"
std::string_view dtype_name(c10::ScalarType type);

}  // namespace regen::execute
