#include "regen/published/monet/monet_mode.h"

#include <array>

namespace regen::published {
namespace {

struct Word {
  std::string_view name;
  bool MonetMode::*field;
  bool value;
};

constexpr std::array<Word, 5> kWords{{{"inplace", &MonetMode::in_place, true},
                                      {"conv", &MonetMode::conv, true},
                                      {"multiway", &MonetMode::multiway, true},
                                      {"newnode", &MonetMode::newnode, true},
                                      {"ablation", &MonetMode::checkpointing, false}}};

bool apply(std::string_view word, MonetMode& mode) {
  for (const Word& known : kWords) {
    if (word != known.name) continue;
    mode.*known.field = known.value;
    return true;
  }
  return word == "normal";
}

}  // namespace

Result<MonetMode> parse_monet_mode(std::string_view text) {
  if (text == "all") return MonetMode{};
  MonetMode mode{.in_place = false, .conv = false, .multiway = false, .newnode = false};
  std::string_view rest = text;
  while (true) {
    const std::size_t end = rest.find('_');
    if (!apply(rest.substr(0, end), mode)) {
      return bad_input("bad mode '" + std::string(text.substr(0, 60)) +
                       "', expected all, or words of inplace, conv, multiway, newnode, normal and "
                       "ablation joined by _");
    }
    if (end == std::string_view::npos) return mode;
    rest.remove_prefix(end + 1);
  }
}

std::string to_string(const MonetMode& mode) {
  if (mode == MonetMode{}) return "all";
  std::string text;
  const MonetMode plain{.in_place = false, .conv = false, .multiway = false, .newnode = false};
  for (const Word& word : kWords) {
    if (mode.*word.field == plain.*word.field) continue;
    text += (text.empty() ? "" : "_") + std::string(word.name);
  }
  return text.empty() ? "normal" : text;
}

}  // namespace regen::published
