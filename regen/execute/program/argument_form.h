// How an argument may be written in a program: plain JSON, lists, and objects with one key for what
// JSON lacks. Whatever else reads arguments relies on this form.
#pragma once

#include <cstddef>

#include "regen/base/json.h"

namespace regen::execute {

struct ArgumentRange {
  std::size_t values = 0;  // {"value": i} has i below this
  std::size_t scalars = 0;
};

Status check_argument(const JsonCursor& argument, const ArgumentRange& range);

}  // namespace regen::execute
