// The largest batch that a planner can train in given memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/planners/planner.h"

namespace regen {

using GraphAtBatch = std::function<Result<Graph>(std::int64_t batch)>;

// Only batches start, start + step, start + 2 step, ...
struct BatchGrid {
  std::int64_t start = 1;
  std::int64_t step = 1;
};

struct MaxBatchProblem {
  GraphAtBatch graph_at;
  Bytes memory = 0;
  // In Checkmate's accounting the fixed bytes count twice, as its batch-size test does.
  PlannerOptions options;
  // At most one forward pass more than the step without recomputation.
  bool compute_cap = true;
  BatchGrid grid;
  std::int64_t largest = 1'000'000;
  Limits limits;  // of each single solve
};

struct MaxBatchAnswer {
  std::string planner;
  std::int64_t max_batch = 0;  // 0: not even the smallest batch fits
  Bytes peak_bytes = 0;        // at max_batch
  double cost = 0;
  double overhead = 0;
  // The largest batch of the grid that is not proven impossible, by what every plan needs or by the
  // planner's own proof; max_batch is optimal for the planner's class if they are equal.
  std::int64_t upper_bound = 0;
  // Why the next batch of the grid does not fit: "structural_bound" (no plan at all can hold it),
  // "memory" (this planner's plans cannot), "compute_cap", "search_limit" (the time or work limit
  // of a solve came first), "interrupted", "batch_limit" (nothing; the search ends there).
  std::string limited_by;
};

// Exact when fitting is monotone in the batch, as it is for costs and sizes linear in it: the
// answer fits and the next batch of the grid does not, both checked by building and planning.
Result<MaxBatchAnswer> max_batch(std::string_view planner, const MaxBatchProblem& problem);

}  // namespace regen
