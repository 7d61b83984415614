#include "regen/base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "regen/base/text.h"

namespace regen {
namespace {

constexpr std::string_view kByteForms = "a number of bytes such as 8GiB, 500MB or 16e9";

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// The factor of a unit suffix, or 0 when it is none.
double unit_factor(std::string_view suffix) {
  std::string unit;
  for (char c : suffix) unit += lower(c);
  if (unit.empty() || unit == "b") return 1;
  constexpr std::string_view kPrefixes = "kmgtp";
  const auto power = kPrefixes.find(unit[0]);
  if (power == std::string_view::npos) return 0;
  const std::string rest = unit.substr(1);
  const double exponent = static_cast<double>(power + 1);
  if (rest.empty() || rest == "b") return std::pow(1000.0, exponent);
  if (rest == "ib" || rest == "i") return std::pow(1024.0, exponent);
  return 0;
}

std::string scaled(double value, double base, const auto& names, const char* unit) {
  std::size_t i = 0;
  while (i + 1 < names.size() && value >= base) {
    value /= base;
    ++i;
  }
  std::array<char, 64> text{};
  const int decimals = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  std::snprintf(text.data(), text.size(), "%.*f %s%s", decimals, value, names[i], unit);
  return text.data();
}

}  // namespace

std::string_view to_string(CostUnit unit) {
  return unit == CostUnit::kSecond ? "second" : "flop";
}

Result<CostUnit> parse_cost_unit(std::string_view text) {
  if (text == "second") return CostUnit::kSecond;
  if (text == "flop") return CostUnit::kFlop;
  return bad_input("unknown cost unit " + in_quotes(text) + ", expected second or flop");
}

Result<Bytes> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc()) {
    return bad_input("bad size " + in_quotes(text) + ", expected " + std::string(kByteForms));
  }
  std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  const double factor = unit_factor(suffix);
  if (factor == 0) {
    return bad_input("unknown unit " + in_quotes(suffix) + " in size " + in_quotes(text) +
                     ", expected B, KB, MB, GB, TB, KiB, MiB, GiB or TiB");
  }
  const double bytes = std::round(number * factor);
  if (!(bytes >= 0 && bytes <= static_cast<double>(kMaxBytes))) {
    return bad_input("size " + in_quotes(text) + " is out of range, expected 0 to 8 PiB");
  }
  return static_cast<Bytes>(bytes);
}

std::string format_bytes(Bytes bytes) {
  if (bytes < 1024 && bytes > -1024) return std::to_string(bytes) + " B";
  if (bytes < 0) return "-" + format_bytes(bytes == INT64_MIN ? INT64_MAX : -bytes);
  constexpr std::array<const char*, 6> kNames{"", "Ki", "Mi", "Gi", "Ti", "Pi"};
  return scaled(static_cast<double>(bytes), 1024, kNames, "B");
}

std::string format_grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  const std::size_t first = value < 0 ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string format_count(std::size_t count, std::string_view noun) {
  return format_grouped(static_cast<std::int64_t>(count)) + " " + std::string(noun) +
         (count == 1 ? "" : "s");
}

std::string format_cost(double cost, CostUnit unit) {
  if (unit == CostUnit::kFlop) {
    constexpr std::array<const char*, 6> kNames{"", "k", "M", "G", "T", "P"};
    return scaled(cost, 1000, kNames, "flop");
  }
  if (cost >= 1) return scaled(cost, 1e300, std::array<const char*, 1>{""}, "s");
  constexpr std::array<const char*, 3> kNames{"n", "u", "m"};
  return scaled(cost * 1e9, 1000, kNames, "s");
}

std::string format_exact(double value) {
  std::array<char, 64> text{};
  const auto [end, status] = std::to_chars(text.data(), text.data() + text.size(), value);
  return status == std::errc() ? std::string(text.data(), end) : "nan";
}

Result<double> parse_double(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) {
    return bad_input("bad number " + in_quotes(text) + ", expected a decimal such as 12 or 0.5");
  }
  return number;
}

Result<std::int64_t> parse_int(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size()) {
    return bad_input("bad whole number " + in_quotes(text) + ", expected digits");
  }
  return number;
}

}  // namespace regen
