// Messages quote files and arguments that may hold anything; a terminal must not suffer from it.
#pragma once

#include <string>
#include <string_view>

namespace regen::cli {

// The message as one line of valid UTF-8 without control characters; the middle of a very long
// one is left out.
std::string one_line(std::string_view message);

}  // namespace regen::cli
