// Several budgets in one option: a range, a list, or whatever suits the graph.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/options/byte_amount.h"

namespace regen::cli {

// LO:HI:N, or B,B,...; without either the ends follow from the graph.
struct BudgetRange {
  std::optional<ByteAmount> low;
  std::optional<ByteAmount> high;
  std::int64_t count = 20;
  std::vector<ByteAmount> listed;
  std::string text;  // as the user wrote it

  bool automatic() const { return listed.empty() && !low; }
};

Result<BudgetRange> parse_budget_range(std::string_view text);

// The budgets of a range or a list that is not automatic; `offset` is added to each. `device` may be
// null.
Result<std::vector<Bytes>> range_points(const BudgetRange& range, const Graph& graph,
                                        const Device* device, Bytes offset);

// From `low` to `high`, both included; `count` is at least 2.
std::vector<Bytes> even_points(Bytes low, Bytes high, std::int64_t count);

}  // namespace regen::cli
