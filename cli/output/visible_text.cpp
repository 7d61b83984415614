#include "cli/output/visible_text.h"

#include <locale.h>
#include <wchar.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "regen/base/text.h"

namespace regen::cli {
namespace {

struct Character {
  std::string_view bytes;
  char32_t number = 0;
  bool whole = true;  // else a byte that belongs to no character
};

// The first character of a text that is not empty.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t size = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  const std::string_view bytes = text.substr(0, size);
  if (!is_utf8(bytes)) return {text.substr(0, 1), lead, false};
  char32_t number = size == 1 ? lead : lead & (0xffu >> (size + 1));
  for (const char c : bytes.substr(1))
    number = number << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return {bytes, number, true};
}

// Columns, by the tables of the C library; 0 and less: it is not seen.
int width_of(char32_t number) {
  if (number < 0x80) return number >= ' ' && number != 127 ? 1 : 0;
  static const locale_t unicode = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (unicode == nullptr) return 0;
  const locale_t former = ::uselocale(unicode);
  const int width = ::wcwidth(static_cast<wchar_t>(number));
  ::uselocale(former);
  return width;
}

std::string escaped(const Character& character) {
  if (character.bytes == "\\") return "\\\\";
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), character.whole ? "\\u{%x}" : "\\x%02x",
                static_cast<unsigned>(character.number));
  return text.data();
}

}  // namespace

bool utf8_wanted() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string lower(value);
    std::erase(lower, '-');
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return lower.find("utf8") != std::string::npos;
  }
  return false;
}

std::string visible_text(std::string_view text, bool utf8) {
  std::string shown;
  while (!text.empty()) {
    const Character character = first_character(text);
    text.remove_prefix(character.bytes.size());
    const bool known = character.whole && (utf8 || character.number < 0x80);
    const bool seen = known && character.bytes != "\\" && width_of(character.number) > 0;
    shown += seen ? std::string(character.bytes) : escaped(character);
  }
  return shown;
}

std::size_t columns_of(std::string_view visible) {
  std::size_t columns = 0;
  while (!visible.empty()) {
    const Character character = first_character(visible);
    visible.remove_prefix(character.bytes.size());
    columns += static_cast<std::size_t>(std::max(0, width_of(character.number)));
  }
  return columns;
}

std::string in_columns(std::string_view visible, std::size_t columns, Side text) {
  constexpr std::string_view kCut = "..";
  std::string shown(visible);
  if (columns_of(visible) > columns) {
    const std::size_t room = columns - std::min(columns, kCut.size());
    shown.clear();
    for (std::string_view rest = visible; !rest.empty();) {
      const Character next = first_character(rest);
      if (columns_of(shown) + columns_of(next.bytes) > room) break;
      shown += next.bytes;
      rest.remove_prefix(next.bytes.size());
    }
    shown += kCut.substr(0, columns);
  }
  const std::string space(columns - std::min(columns, columns_of(shown)), ' ');
  return text == Side::kLeft ? shown + space : space + shown;
}

}  // namespace regen::cli
