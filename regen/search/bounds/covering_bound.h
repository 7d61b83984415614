// A lower bound on the cost of all plans within a budget whose first runs keep the order of the
// graph. Bytes that do not fit while an op runs for the first time must be recomputed later or
// moved to the host and back.
//
//   minimise   sum of c(p) x(p) + s        c(p): cost of one more run of op p
//   for each op j:                         s: all other overhead, such as stalls
//     bytes of dropped values live across j + bytes that can be away  >=  bytes live at j - budget
//
// - A value is live across j if an op before j makes it and an op after j reads it in all its
//   variants. The values that j reads are on the device.
// - x(p) lies between 0 and 1: values of p that are not live must be recomputed at least once.
// - Bytes that are away at j left before j began and return after it. With w = the whole overhead
//   they are at most to_host * (time before j + w), at most to_device * (time from j on + w), and
//   never more than the host budget.
// - x(p) <= x(q) where p is the last to read a value of q that is no smaller than all that p makes:
//   holding or moving that value in place of what p makes gains nothing.
//
// The linear model has a column for each op, and rows only where a solution violates them.
#pragma once

#include <vector>

#include "regen/base/limit.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"

namespace regen::search {

// Memory while one op runs for the first time, in the model's solution at the bound.
struct MemoryRow {
  OpId op;
  // The shadow price: by how much one more byte, at this op alone, lowers the bound; 0 where memory
  // does not bind. In the graph's unit of cost, never negative. The bound is convex in the budget:
  // each further byte lowers it by at most as much.
  double price = 0;
  double live_bytes = 0;     // with nothing dropped or away, fixed bytes included
  double dropped_bytes = 0;  // of values that are recomputed later
  double away_bytes = 0;     // further bytes that must be on the host
};

struct CoveringBound {
  double cost = 0;
  // By op, between 0 and 1: the fraction that the model's solution recomputes. It is no plan, but a
  // hint for good ones.
  std::vector<double> again;
  // Where memory binds, in the order of the graph. Empty if the bound is that of running every op
  // once, or infinite.
  std::vector<MemoryRow> rows;
};

// Never below the cost of running every op once, each in its cheapest way; infinite if no plan in
// this order keeps the budget. Stops early, with a bound that holds, when the effort is exhausted.
CoveringBound covering_bound(const Graph& graph, const Link& link, Bytes budget, Effort& effort,
                             Bytes host_budget = kMaxBytes);

}  // namespace regen::search
