#include "regen/base/text.h"

#include "regen/base/utf8.h"

namespace regen {

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const unsigned lead = byte(i);
    const std::size_t size = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (size > 1 && (lead < 0xc2 || lead > 0xf4)) return false;
    for (std::size_t k = 1; k < size; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    const unsigned second = byte(i + 1);  // decides over-long forms, surrogates and the end
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += size;
  }
  return true;
}

std::string on_one_line(std::string_view text, std::size_t limit) {
  std::string shown;
  for (char c : first_bytes(text, limit)) {
    const bool control = static_cast<unsigned char>(c) < ' ' || c == 127;
    shown += control ? '?' : c;
  }
  return text.size() > limit ? shown + "..." : shown;
}

std::string in_quotes(std::string_view text) {
  return "'" + on_one_line(text, 60) + "'";
}

}  // namespace regen
