// Text of any origin on a terminal: what it shows is what is written, in as many columns as are counted. Characters that
// cannot be seen, that move others (control characters, marks of direction), or that the terminal cannot show, are
// written as their number: \u{202e}.
#pragma once

#include <string>
#include <string_view>

namespace regen::cli {

// Whether the environment's character set is UTF-8 (LC_ALL, LC_CTYPE, LANG).
bool utf8_wanted();

// `utf8`: whether the terminal shows more than ASCII.
std::string visible_text(std::string_view text, bool utf8);

// How many columns such a text takes.
std::size_t columns_of(std::string_view visible);

// The text in exactly `columns` columns: cut, with two dots at its end, or filled up with spaces on one side.
enum class Side { kLeft, kRight };
std::string in_columns(std::string_view visible, std::size_t columns, Side text = Side::kLeft);

}  // namespace regen::cli
