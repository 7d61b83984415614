// Several budgets in one option: a range, a list, or whatever suits the graph.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::cli {

// LO:HI:N, or B,B,...; without either the ends follow from the graph.
struct BudgetRange {
  std::optional<Bytes> low;
  std::optional<Bytes> high;
  std::int64_t count = 20;
  std::vector<Bytes> listed;

  bool automatic() const { return listed.empty() && !low; }
};

Result<BudgetRange> parse_budget_range(std::string_view text);

// The budgets of a range whose ends are known, or of a list; `offset` is added to each.
std::vector<Bytes> range_points(const BudgetRange& range, Bytes offset);

}  // namespace regen::cli
