// What memory is worth at a budget: where it binds, which values pay for it there, and by how much
// a larger budget would lower the least cost that a plan can have.
//
// The prices are those of the memory rows of the covering bound (covering_bound.h), so they are
// about plans whose first runs keep the order of the graph. The bound falls and is convex as the
// budget grows: the price says what the first byte brings, and every further one brings less. What
// a given number of bytes brings is therefore asked again at the larger budget.
#pragma once

#include <vector>

#include "regen/search/bounds/covering_bound.h"

namespace regen::search {

struct ShadowPrice {
  Bytes budget = 0;
  double least_cost = 0;        // of every op once, each in its cheapest way
  double bound = 0;             // no plan in this order costs less; infinite: none keeps the budget
  double per_byte = 0;          // the sum over all rows: what the bound falls by for the next byte
  std::vector<MemoryRow> rows;  // where memory binds, dearest first
  std::vector<double> again;    // of each op: the share that the program makes again

  Bytes more = 0;              // so many bytes more than the budget
  double bound_with_more = 0;  // the bound solved again there

  bool binds() const { return per_byte > 0; }
  double saved_at_most() const { return per_byte * static_cast<double>(more); }
  double saved_with_more() const { return bound - bound_with_more; }
};

// The budget must be at least what every plan needs (explain.h), `more` not negative. Stops early,
// with prices that hold, when the effort is exhausted.
ShadowPrice price_memory(const Graph& graph, const Link& link, Bytes budget, Bytes more,
                         Effort& effort);

// A value that is live while an op runs and need not be on the device for it.
struct Tenant {
  TensorId tensor;
  double dropped = 0;     // between 0 and 1: the share of it that the program makes again
  double again_cost = 0;  // of one more run of its maker
  double rent = 0;        // its bytes at their price at every op where it could be elsewhere
};

// All such values at an op: what the program drops first, by bytes, then the largest.
std::vector<Tenant> tenants_at(const Graph& graph, const ShadowPrice& price, OpId op);

}  // namespace regen::search
