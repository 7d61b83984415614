// Names from files as text that a page can show: one line, short, and UTF-8 whatever the file holds.
#pragma once

#include <string>
#include <string_view>

namespace regen::report {

// Long enough for a module's path; a label of ten megabytes becomes as much of it.
inline constexpr std::size_t kLongestLabel = 120;

// Control characters become ?, what is no UTF-8 too; what is left out ends in "...".
std::string label(std::string_view text, std::size_t limit = kLongestLabel);

}  // namespace regen::report
