#include "cli/options/budget_range.h"

#include <string>

#include "cli/options/options.h"

namespace regen::cli {
namespace {

Error range_error(std::string_view text) {
  return bad_input("bad budgets '" + std::string(text.substr(0, 80)) +
                   "', expected LO:HI:N such as 2GiB:8GiB:13 with N from 2 to 100000, a list such "
                   "as 2GiB,50%, or auto, or auto:N");
}

Result<BudgetRange> parse_listed(std::string_view text) {
  BudgetRange range;
  REGEN_ASSIGN(const std::vector<std::string> parts, split_list(text));
  for (const std::string& part : parts) {
    REGEN_ASSIGN(const ByteAmount amount, ByteAmount::parse(part));
    range.listed.push_back(amount);
  }
  return range;
}

}  // namespace

Result<BudgetRange> parse_budget_range(std::string_view text) {
  if (text.find(',') != std::string_view::npos) return parse_listed(text);
  BudgetRange range;
  range.text = text.substr(0, 80);
  const std::size_t last = text.rfind(':');
  if (last != std::string_view::npos) {
    const auto count = whole_number(2, 100'000)(text.substr(last + 1));
    if (!count.ok()) return range_error(text);
    range.count = *count;
  }
  const std::string_view ends = text.substr(0, last);
  if (ends == "auto") return range;
  const std::size_t middle = ends.find(':');
  if (last == std::string_view::npos) {
    return ByteAmount::parse(text).ok() ? parse_listed(text) : range_error(text);
  }
  if (middle == std::string_view::npos) return range_error(text);
  REGEN_ASSIGN(range.low, ByteAmount::parse(ends.substr(0, middle)));
  REGEN_ASSIGN(range.high, ByteAmount::parse(ends.substr(middle + 1)));
  return range;
}

Result<std::vector<Bytes>> range_points(const BudgetRange& range, const Graph& graph,
                                        const Device* device, Bytes offset) {
  std::vector<Bytes> points;
  for (const ByteAmount& amount : range.listed) {
    REGEN_ASSIGN(const Bytes budget, amount.resolve(graph, device));
    points.push_back(offset + budget);
  }
  if (!points.empty()) return points;
  REGEN_ASSIGN(const Bytes low, range.low->resolve(graph, device));
  REGEN_ASSIGN(const Bytes high, range.high->resolve(graph, device));
  if (low > high) {
    return bad_input("--budgets: '" + range.text + "' goes from " + format_grouped(low) + " to " +
                     format_grouped(high) + " bytes, expected the smaller end first");
  }
  return even_points(offset + low, offset + high, range.count);
}

std::vector<Bytes> even_points(Bytes low, Bytes high, std::int64_t count) {
  std::vector<Bytes> points;
  const double step = static_cast<double>(high - low) / static_cast<double>(count - 1);
  for (std::int64_t i = 0; i + 1 < count; ++i) {
    points.push_back(low + static_cast<Bytes>(step * static_cast<double>(i)));
  }
  points.push_back(high);
  return points;
}

}  // namespace regen::cli
