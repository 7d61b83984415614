#include "regen/search/bounds/shadow_prices.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "regen/search/bounds/guaranteed_liveness.h"
#include "regen/search/effort_fraction.h"

namespace regen::search {
namespace {

void solve_with_more(const Graph& graph, const Link& link, const Limits& limits, Effort& effort,
                     ShadowPrice& price) {
  Effort own(limits);
  price.bound_with_more = covering_bound(graph, link, price.budget + price.more, own).cost;
  effort.add(own.work());
  // Either bound may have been stopped early. What holds for more memory holds for less, and the
  // prices say how far the bound can fall.
  price.bound = std::max(price.bound, price.bound_with_more);
  if (std::isfinite(price.bound)) {
    price.bound_with_more = std::max(price.bound_with_more, price.bound - price.saved_at_most());
  }
}

}  // namespace

ShadowPrice price_memory(const Graph& graph, const Link& link, Bytes budget, Bytes more,
                         Effort& effort) {
  ShadowPrice price{.budget = budget, .more = more};
  for (OpId op : graph.ops()) price.least_cost += cheapest_run(graph, op);
  // Both models get the same effort, so that the second does not depend on what the first has left.
  const Limits each = fraction_of(effort, 0.5);
  Effort own(each);
  CoveringBound bound = covering_bound(graph, link, budget, own);
  effort.add(own.work());
  price.bound = bound.cost;
  price.rows = std::move(bound.rows);
  price.again = std::move(bound.again);
  std::ranges::stable_sort(price.rows, std::ranges::greater{}, &MemoryRow::price);
  for (const MemoryRow& row : price.rows) price.per_byte += row.price;
  solve_with_more(graph, link, each, effort, price);
  return price;
}

std::vector<Tenant> tenants_at(const Graph& graph, const ShadowPrice& price, OpId op) {
  const GuaranteedLiveness live(graph);
  std::vector<Tenant> tenants;
  IdVector<TensorId, double> prices(graph.num_tensors(), 0);
  for (const MemoryRow& row : price.rows) {
    for (TensorId t : live.spare(row.op)) prices[t] += row.price;
  }
  for (TensorId t : live.spare(op)) {
    const OpId maker = graph.producer(t);
    tenants.push_back({.tensor = t,
                       .dropped = price.again[maker.index()],
                       .again_cost = cheapest_rerun(graph, maker),
                       .rent = prices[t] * static_cast<double>(graph.bytes(t))});
  }
  const auto order = [&](const Tenant& tenant) {
    const auto bytes = static_cast<double>(graph.bytes(tenant.tensor));
    return std::pair(-tenant.dropped * bytes, -bytes);
  };
  std::ranges::stable_sort(tenants, {}, order);
  return tenants;
}

}  // namespace regen::search
