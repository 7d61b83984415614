#include "regen/search/services/budget_knowledge.h"

#include <algorithm>
#include <array>

namespace regen::search {
namespace {

bool usable(const Outcome& outcome) {
  return outcome.status == PlanStatus::kOptimal || outcome.status == PlanStatus::kFeasible;
}

void take_plan(const Outcome& from, Outcome& to) {
  const double bound = to.lower_bound;
  const BoundKind kind = to.bound_kind;
  to = from;
  to.lower_bound = bound;
  to.bound_kind = kind;
  to.status = PlanStatus::kFeasible;
}

// Plans of a later kind are plans of an earlier one: a bound on the earlier holds for the later.
constexpr std::array kNarrowing{BoundKind::kEveryPlan, BoundKind::kOrder, BoundKind::kStages};

std::size_t depth(BoundKind kind) {
  return static_cast<std::size_t>(std::ranges::find(kNarrowing, kind) - kNarrowing.begin());
}

void settle(Outcome& outcome) {
  if (!usable(outcome)) return;
  const double cost = outcome.simulation.cost;
  outcome.lower_bound = std::min(outcome.lower_bound, cost);
  outcome.gap = cost > 0 ? std::max(0.0, 1 - outcome.lower_bound / cost) : 0;
}

}  // namespace

void share_knowledge(std::span<Outcome* const> ascending) {
  for (std::size_t i = 1; i < ascending.size(); ++i) {
    Outcome& more = *ascending[i];
    const Outcome& less = *ascending[i - 1];
    if (!usable(less)) continue;
    if (usable(more) && more.simulation.cost <= less.simulation.cost) continue;
    take_plan(less, more);
  }
  std::array<double, kNarrowing.size()> known{};  // the greatest bound of each kind so far
  for (auto outcome = ascending.rbegin(); outcome != ascending.rend(); ++outcome) {
    const std::size_t own = depth((*outcome)->bound_kind);
    known[own] = std::max(known[own], (*outcome)->lower_bound);
    for (std::size_t wider = 0; wider <= own; ++wider) {
      (*outcome)->lower_bound = std::max((*outcome)->lower_bound, known[wider]);
    }
    settle(**outcome);
  }
}

}  // namespace regen::search
