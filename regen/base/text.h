// Text for messages.
#pragma once

#include <string>
#include <string_view>

namespace regen {

// The text with control characters replaced by ?, cut to `limit` characters and then "...".
std::string on_one_line(std::string_view text, std::size_t limit);

// The text in quotes, for a message: on one line, shortened when long.
std::string in_quotes(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace regen
