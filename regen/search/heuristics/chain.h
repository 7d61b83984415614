// The `chain` planner's schedules for others, for instance as the start of a search.
#pragma once

#include <optional>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/result.h"
#include "regen/graph/graph.h"

namespace regen::search {

struct ChainSchedule {
  std::vector<OpId> sequence;  // for plan_from_sequence
  // What the planner added up: the peak of the plan, fixed bytes included, to the byte if `exact`,
  // and never less.
  Bytes peak_bytes = 0;
  bool exact = false;
  std::size_t num_blocks = 0;
  // No schedule of the class (chain_table.h) is cheaper within the budget, or, without one, takes
  // less memory.
  bool proven = false;
};

// The cheapest schedule of the class within `budget` bytes, fixed ones included, that costs at
// most `cost_cap`; without a budget the one of least memory, then of least cost. An error with
// kLimit when none was found, or when the graph's ops cannot be put into sequences.
Result<ChainSchedule> chain_schedule(const Graph& graph, std::optional<Bytes> budget,
                                     std::optional<double> cost_cap, Effort& effort);

}  // namespace regen::search
