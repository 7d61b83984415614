#include "regen/base/utf8.h"

#include "regen/base/text.h"

namespace regen {
namespace {

constexpr std::size_t kLongest = 4;  // bytes of a character

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) == 0x80;
}

// Bytes of the character at the beginning; 0: there is none.
std::size_t character_at_front(std::string_view text) {
  for (std::size_t size = 1; size <= kLongest && size <= text.size(); ++size) {
    if (is_utf8(text.substr(0, size))) return size;
  }
  return 0;
}

}  // namespace

std::string_view first_bytes(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) return text;
  std::size_t end = limit;
  while (end > 0 && limit - end < kLongest && continues(text[end])) --end;
  // Only where a character was cut: bytes that merely look like the rest of one are kept.
  const bool cut = character_at_front(text.substr(end)) > limit - end;
  return text.substr(0, cut ? end : limit);
}

std::string as_utf8(std::string_view text) {
  if (is_utf8(text)) return std::string(text);
  std::string valid;
  while (!text.empty()) {
    const std::size_t size = character_at_front(text);
    if (size == 0) valid += '?';
    valid += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  return valid;
}

}  // namespace regen
