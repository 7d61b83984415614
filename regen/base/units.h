// Bytes, costs and how people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regen/base/result.h"

namespace regen {

using Bytes = std::int64_t;

// No real machine has more; sums of up to a thousand such values cannot overflow.
inline constexpr Bytes kMaxBytes = Bytes{1} << 53;

// What a cost counts.
enum class CostUnit : std::uint8_t { kSecond, kFlop };

std::string_view to_string(CostUnit unit);
Result<CostUnit> parse_cost_unit(std::string_view text);

// Reads "8GiB", "500MB", "16e9", "1048576"; K, M, G, T with B (powers of 1000) or iB
// (powers of 1024), letter case ignored. The value is rounded to whole bytes, up to kMaxBytes.
Result<Bytes> parse_bytes(std::string_view text);

// "1.50 GiB": three significant digits in binary units, exact below 1 KiB.
std::string format_bytes(Bytes bytes);

// 58896187392 as "58,896,187,392".
std::string format_grouped(std::int64_t value);

// "1 checkpoint", "3 checkpoints".
std::string format_count(std::size_t count, std::string_view noun);

// A cost for people: "12.3 ms" or "58.9 Gflop".
std::string format_cost(double cost, CostUnit unit);

// The shortest decimal text that reads back as the same double.
std::string format_exact(double value);

// Reads a whole number or a decimal with nothing left over.
Result<double> parse_double(std::string_view text);
Result<std::int64_t> parse_int(std::string_view text);

}  // namespace regen
