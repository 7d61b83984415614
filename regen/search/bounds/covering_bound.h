// A cost that no plan within a budget can beat, if first runs keep the order of the graph: whatever
// does not fit while an op runs for the first time must be made again later or travel to the host
// and back.
//
//   minimise   sum of c(p) x(p) + s                   c(p): one more run of op p; s: whatever else
//   for each op j:
//     bytes of dropped values live across j + bytes that can be away  >=  bytes live at j - budget
//
// - A value is live across j if an op before j makes it and one after j reads it in all its
// variants. What j
//   itself reads is there.
// - x(p) between 0 and 1: values of p that are not there must be made again at least once.
// - What is away at j went before j began and comes back after: with w = the whole overhead, at
// most
//   to_host * (time before j + w) and at most to_device * (time from j on + w) bytes, and never
//   more than the host holds.
// - x(p) <= x(q) where p is the last to read a value of q that is no smaller than all that p makes:
// to hold
//   or to move that value in place of what p makes gains nothing.
//
// The program has a column for each op and rows only where a solution breaks them.
#pragma once

#include <vector>

#include "regen/base/limit.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/search/bounds/guaranteed_liveness.h"

namespace regen::search {

// Memory while one op runs for the first time, in the program at the bound.
struct MemoryRow {
  OpId op;
  // By how much a byte more, at this op alone, lowers the bound; 0 where memory does not bind.
  // In the graph's unit of cost, never negative. The bound is convex in the budget, so that more
  // bytes lower it by at most as much each.
  double price = 0;
  double live_bytes = 0;     // with nothing dropped or away, fixed bytes included
  double dropped_bytes = 0;  // of values that are made again later
  double away_bytes = 0;     // that must be on the host beside that
};

struct CoveringBound {
  double cost = 0;
  // Of each op, between 0 and 1: what the program at the bound makes again. No plan, but near good
  // ones.
  std::vector<double> again;
  // Where memory binds, in the order of the graph. Empty if the bound is that of running every op
  // once, or infinite.
  std::vector<MemoryRow> rows;
};

// Never below the cost of running every op once, each in its cheapest way; infinite if no plan in
// this order keeps the budget. Stops early, with a bound that holds, when the effort is exhausted.
CoveringBound covering_bound(const Graph& graph, const Link& link, Bytes budget, Effort& effort,
                             Bytes host_budget = kMaxBytes);

// The same about the plans that the liveness is about: with LivenessInEveryOrder about all plans.
CoveringBound covering_bound(const GuaranteedLiveness& live, const Link& link, Bytes budget,
                             Effort& effort, Bytes host_budget = kMaxBytes);

}  // namespace regen::search
