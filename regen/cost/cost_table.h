// Measured costs: seconds of the first run and of a re-run for each op and variant. The profiler
// writes such tables, the cost model "table" reads them (docs/reference/costs.md has the file
// format).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/cost/cost_model.h"

namespace regen {

struct CostTableEntry {
  std::string op;       // its name
  std::string variant;  // its name; the only variant of an op has mostly none
  // When valid: for this op only, which must have that name in the graph. Otherwise for every op
  // of that name that no entry with an index describes.
  OpId index;
  OpCost seconds;

  bool operator==(const CostTableEntry&) const = default;
};

struct CostTable {
  std::string device;              // where it was measured, for people
  std::optional<OpCost> fallback;  // seconds of whatever has no entry; absent: that is an error
  std::vector<CostTableEntry> entries;

  bool operator==(const CostTable&) const = default;
};

// Refuses negative seconds and two entries for the same thing.
Status check_cost_table(const CostTable& table, const std::string& source);

Result<CostTable> parse_cost_table(std::string_view text, const std::string& source);
std::string write_cost_table(const CostTable& table);

// Its check() refuses a graph that the table was not made for, naming the first op without an
// entry or with an entry of another name.
Result<std::unique_ptr<CostModel>> make_table_model(CostTable table);

}  // namespace regen
