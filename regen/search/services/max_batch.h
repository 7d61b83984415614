// The largest batch that a planner can train in given memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/search/judge.h"

namespace regen::search {

using GraphAtBatch = std::function<Result<Graph>(std::int64_t batch)>;

// Only batches start, start + step, start + 2 step, ...
struct BatchGrid {
  std::int64_t start = 1;
  std::int64_t step = 1;
};

struct MaxBatchProblem {
  GraphAtBatch graph_at;
  Bytes memory = 0;
  Link link;  // in the graphs' unit of cost; none: nothing moves
  // In Checkmate's accounting the fixed bytes count twice, as its batch-size test does.
  PlannerOptions options;
  // At most one forward pass more than the step without recomputation.
  bool compute_cap = true;
  BatchGrid grid;
  std::int64_t largest = 1'000'000;
  Limits limits;  // of each single solve
  // Called with each batch for which a plan was found; may be empty.
  std::function<void(std::int64_t batch)> observer = {};

  // Only the batch is wanted: no proof of what is impossible, no second look at what it costs. Then
  // the caller may say what is known already.
  bool batch_only = false;
  std::int64_t known = 0;              // a batch of the grid that fits; 0: none is known
  std::optional<std::int64_t> guess;   // where the search begins; absent: it looks for itself
  std::int64_t stride = 1;             // how far from the guess to look next; then twice that
  std::int64_t most_solves = 1 << 30;  // then the best batch so far is the answer
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
  // of a solve or the number of solves came first), "interrupted", "batch_limit" (nothing; the
  // search ends there). With `batch_only` empty, unless the number of solves came first.
  std::string limited_by;
};

// Exact when fitting is monotone in the batch, as it is for costs and sizes linear in it: the
// answer fits and the next batch of the grid does not, both checked by building and planning.
Result<MaxBatchAnswer> max_batch(const Planner& planner, const MaxBatchProblem& problem);

// One forward pass: what the cap allows beyond keeping everything.
double forward_cost(const Graph& graph);

}  // namespace regen::search
