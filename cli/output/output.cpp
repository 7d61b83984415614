#include "cli/output/output.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/output/message.h"
#include "regen/base/file.h"
#include "regen/base/progress/progress_line.h"

namespace regen::cli {
namespace {

std::string padded(const std::string& text, std::size_t width, Table::Align align) {
  const std::string space(width - std::min(width, text.size()), ' ');
  return align == Table::Align::kLeft ? text + space : space + text;
}

std::string without_trailing_spaces(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

Status print(std::string_view text) {
  const ProgressPause pause;
  return write_file("-", text);
}

Status print_json(const Json& value) {
  // Names come from files and may hold anything: what is not UTF-8 is replaced.
  return print(value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void warn(const std::string& message) {
  const ProgressPause pause;
  std::fprintf(stderr, "regen: %s\n", one_line(message).c_str());
}

Json json_or_null(bool known, Json value) {
  return known ? std::move(value) : Json(nullptr);
}

Json json_number(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!std::isfinite(value)) return nullptr;
  if (std::trunc(value) == value && std::abs(value) <= kExact) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

bool colours_wanted() {
  static const bool wanted = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    return ::isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0') &&
           term != nullptr && std::string_view(term) != "dumb";
  }();
  return wanted;
}

std::string bold(const std::string& text) {
  return colours_wanted() ? "\033[1m" + text + "\033[0m" : text;
}

std::string full_bytes(Bytes bytes) {
  if (bytes < 1024) return format_grouped(bytes) + " bytes";
  return format_bytes(bytes) + " (" + format_grouped(bytes) + " bytes)";
}

std::string full_cost(double cost, CostUnit unit) {
  if (unit == CostUnit::kSecond || std::trunc(cost) != cost || std::abs(cost) > 1e18) {
    return format_cost(cost, unit);
  }
  return format_grouped(static_cast<std::int64_t>(cost)) + " flop";
}

std::string percent(double fraction) {
  const std::string text = decimals(100 * fraction, 1);
  return (fraction >= 0 ? "+" : "") + text + " %";
}

std::string decimals(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns_) widths.push_back(column.head.size());
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string head;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    head += (i == 0 ? "" : "  ") + padded(columns_[i].head, widths[i], columns_[i].align);
  }
  std::string result = bold(without_trailing_spaces(head)) + "\n";
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += (i == 0 ? "" : "  ") + padded(row[i], widths[i], columns_[i].align);
    }
    result += without_trailing_spaces(line) + "\n";
  }
  return result;
}

std::string facts(const std::vector<std::pair<std::string, std::string>>& lines) {
  std::size_t width = 0;
  for (const auto& [label, value] : lines) width = std::max(width, label.size());
  std::string result;
  for (const auto& [label, value] : lines) {
    result += bold(padded(label, width, Table::Align::kLeft)) + "  " + value + "\n";
  }
  return result;
}

}  // namespace regen::cli
