// Text that is cut, or comes from elsewhere, as text that every reader accepts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace regen {

// At most `limit` bytes from the beginning, and no character in part. What is no UTF-8 stays as it is.
std::string_view first_bytes(std::string_view text, std::size_t limit);

// The text with ? for each byte that belongs to no character.
std::string as_utf8(std::string_view text);

}  // namespace regen
