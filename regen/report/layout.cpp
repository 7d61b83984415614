#include "regen/report/layout.h"

#include <algorithm>

#include "regen/plan/addresses.h"

namespace regen::report {
namespace {

// A tenth of what a planner gives its result: the picture need not be the best packing.
constexpr std::int64_t kPackWork = 100'000;

Bytes highest_end(const std::vector<Lifetime>& lifetimes, const std::vector<Bytes>& addresses) {
  Bytes highest = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    highest = std::max(highest, addresses[i] + lifetimes[i].size);
  }
  return highest;
}

}  // namespace

Result<Layout> layout_of(const Graph& graph, const Plan& plan) {
  const std::vector<Lifetime> lifetimes = allocation_lifetimes(graph, plan);
  if (plan.addresses) {
    return Layout{*plan.addresses, highest_end(lifetimes, *plan.addresses), true};
  }
  REGEN_ASSIGN(const Packing packing, pack(lifetimes, {.limits = {.work = kPackWork}}));
  return Layout{packing.offsets, packing.height, false};
}

}  // namespace regen::report
