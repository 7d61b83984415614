#include "regen/base/progress/progress_text.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>
#include <vector>

namespace regen {
namespace {

struct Words {
  std::string_view stage;
  std::string_view during;
  std::string_view after;
};

// Other stages are verbs of the program, which are called by their names.
constexpr std::array<Words, 10> kWords{{
    {"batch", "finding the largest batch", "found the largest batch"},
    {"capture", "capturing", "captured"},
    {"compile", "compiling", "compiled"},
    {"improve", "improving", "improved"},
    {"measure", "measuring", "measured"},
    {"place", "placing", "placed"},
    {"plan", "planning", "planned"},
    {"read", "reading", "read"},
    {"run", "running", "ran"},
    {"wait", "waiting", "waited"},
}};

constexpr std::size_t kBar = 24;

std::string decimal(double value, int digits) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string duration(double seconds) {
  if (seconds < 9.95) return decimal(seconds, 1) + " s";
  if (seconds < 600) return decimal(seconds, 0) + " s";
  if (seconds < 7200) return decimal(seconds / 60, 0) + " min";
  return decimal(seconds / 3600, 1) + " h";
}

// For the cheapest plan; not for something else about plans.
bool searches(const ProgressState& state) {
  return (state.stage == "plan" || state.stage == "improve") && state.subject.empty();
}

// Whether what has ended did all that it had begun.
bool complete(const ProgressState& state) {
  return state.done >= state.total && (!searches(state) || state.best);
}

std::string what(const ProgressState& state, bool with_pieces) {
  const auto* words = std::ranges::find(kWords, state.stage, &Words::stage);
  const bool known = words != kWords.end();
  const bool over = state.ended && complete(state);
  std::string text = known ? std::string(over ? words->after : words->during) : state.stage;
  if (!state.subject.empty()) text += " " + state.subject;
  if (state.done > 0 || state.total > 0) text += " " + std::to_string(state.done);
  if (state.total > 0) text += "/" + std::to_string(state.total);
  const bool counts = state.done > 0 || state.total > 0;
  if (with_pieces && counts && !state.pieces.empty()) text += " " + state.pieces;
  if (state.ended && !over) text += " ended";
  return text;
}

std::string bar(const ProgressState& state) {
  const std::size_t filled = std::min(kBar, state.done * kBar / state.total);
  std::string text(filled, '=');
  if (filled < kBar) text += '>';
  text.resize(kBar, ' ');
  return "[" + text + "]";
}

std::vector<std::string> parts_of(const ProgressState& state, std::size_t width) {
  std::vector<std::string> parts{what(state, /*with_pieces=*/true), duration(state.seconds)};
  if (parts[0].size() > width) parts[0] = what(state, /*with_pieces=*/false);
  if (!state.note.empty()) parts.push_back(state.note);
  if (searches(state) && !state.best) parts.emplace_back("no plan yet");
  if (state.best) parts.push_back("best " + format_cost(*state.best, state.unit));
  if (const auto overhead = state.overhead()) {
    parts.push_back((*overhead >= 0 ? "+" : "") + decimal(100 * *overhead, 1) +
                    " % over keeping everything");
  }
  if (state.bound > 0) parts.push_back("at least " + format_cost(state.bound, state.unit));
  if (const auto gap = state.gap()) parts.push_back("gap " + decimal(100 * *gap, 2) + " %");
  if (state.total > 0 && !state.ended) parts.push_back(bar(state));
  return parts;
}

}  // namespace

std::string progress_text(const ProgressState& state, std::size_t width) {
  std::string text;
  for (const std::string& part : parts_of(state, width)) {
    const std::string separator = text.empty() ? "" : ", ";
    if (!text.empty() && text.size() + separator.size() + part.size() > width) break;
    text += separator + part;
  }
  for (char& c : text) {
    if (c < 0x20 || c > 0x7E) c = '?';  // one column for each byte
  }
  text.resize(std::min(text.size(), width));
  return text;
}

}  // namespace regen
