// Sizes and numbers as people write them: no text crashes the readers, values are in range and
// come back from the exact writers.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "regen/base/units.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto bytes = regen::parse_bytes(text); bytes.ok()) {
    if (*bytes < 0 || *bytes > regen::kMaxBytes) std::abort();
    const auto again = regen::parse_bytes(std::to_string(*bytes));
    if (!again.ok() || *again != *bytes) std::abort();
    // Three digits are shown, so the shown size is within one percent.
    const auto shown = regen::parse_bytes(regen::format_bytes(*bytes));
    const double exact = static_cast<double>(*bytes);
    if (shown.ok() && std::abs(static_cast<double>(*shown) - exact) > 0.01 * exact) std::abort();
    regen::format_grouped(*bytes);
  }
  if (const auto number = regen::parse_double(text); number.ok()) {
    const auto again = regen::parse_double(regen::format_exact(*number));
    if (!again.ok() || *again != *number) std::abort();
    regen::format_cost(*number, regen::CostUnit::kSecond);
    regen::format_cost(*number, regen::CostUnit::kFlop);
  }
  if (const auto number = regen::parse_int(text); number.ok()) {
    const auto again = regen::parse_int(std::to_string(*number));
    if (!again.ok() || *again != *number) std::abort();
    regen::format_grouped(*number);
    if (*number > INT64_MIN) regen::format_bytes(*number);
  }
  if (const auto unit = regen::parse_cost_unit(text); unit.ok()) {
    if (regen::to_string(*unit) != text) std::abort();
  }
  return 0;
}
