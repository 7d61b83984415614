#include "cli/output/message.h"

#include <algorithm>

namespace regen::cli {
namespace {

constexpr std::size_t kLongest = 1200;
constexpr std::size_t kShownEnd = 300;

// Bytes of the UTF-8 character at the beginning of `text`, 0 if it is none. Overlong forms and
// surrogates pass: they are ugly, not dangerous.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::size_t length = byte(0) < 0x80                      ? 1
                             : byte(0) >= 0xC2 && byte(0) < 0xE0 ? 2
                             : byte(0) >= 0xE0 && byte(0) < 0xF0 ? 3
                             : byte(0) >= 0xF0 && byte(0) < 0xF5 ? 4
                                                                 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  const bool c1 =
      character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
  return first < 0x20 || first == 0x7F || c1;
}

}  // namespace

std::string one_line(std::string_view message) {
  std::string text(message.substr(0, kLongest));
  if (message.size() > kLongest) {
    text = std::string(message.substr(0, kLongest - kShownEnd)) + " ... " +
           std::string(message.substr(message.size() - kShownEnd));
  }
  std::string result;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t length = character_length(rest);
    const std::string_view character = rest.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0) {
      result += '?';
    } else if (is_control(character)) {
      result += ' ';
    } else {
      result += character;
    }
    rest.remove_prefix(character.size());
  }
  return result;
}

}  // namespace regen::cli
