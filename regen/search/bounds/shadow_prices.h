// Shadow prices of memory at a budget: where memory binds, which values are dropped or moved there,
// and by how much a larger budget lowers the bound on the cost of a plan.
//
// The prices are those of the memory rows of the covering bound (covering_bound.h), so they are
// about plans whose first runs keep the order of the graph. The bound falls and is convex in the
// budget: the price is the gain of the first byte, and each further byte gains at most as much. For
// a given number of bytes the bound is therefore solved again at the larger budget.
#pragma once

#include <vector>

#include "regen/search/bounds/covering_bound.h"

namespace regen::search {

struct ShadowPrice {
  Bytes budget = 0;
  double least_cost = 0;        // of every op once, each in its cheapest way
  double bound = 0;             // no plan in this order costs less; infinite: none keeps the budget
  double per_byte = 0;          // the sum over all rows: what the bound falls by for the next byte
  std::vector<MemoryRow> rows;  // where memory binds, highest price first
  std::vector<double> again;    // by op: the fraction that the model's solution recomputes

  Bytes more = 0;              // bytes above the budget
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
  double dropped = 0;     // between 0 and 1: the fraction that the model's solution recomputes
  double again_cost = 0;  // of one more run of its maker
  double rent = 0;        // its bytes at their price at every op where it could be elsewhere
};

// All such values at an op: first those that the model's solution drops, by bytes, then the
// largest.
std::vector<Tenant> tenants_at(const Graph& graph, const ShadowPrice& price, OpId op);

}  // namespace regen::search
