#include "regen/search/services/plan_curve.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "regen/base/parallel.h"
#include "regen/base/progress/progress.h"
#include "regen/graph/analysis.h"
#include "regen/plan/explain.h"
#include "regen/search/registry.h"

namespace regen::search {
namespace {

// The fraction of the seconds for the budgets known from the start; the rest is for the least
// budget.
constexpr double kFirstBudgetsTimeFraction = 0.7;

class CurveSearch {
 public:
  CurveSearch(std::span<const Planner* const> planners, const Problem& problem,
              const AddressOptions& addresses, const Limits& limits)
      : problem_(problem), addresses_(addresses), limits_(limits), clock_(limits) {
    for (const Planner* planner : planners) {
      if (planner->name != "keep_all") planners_.push_back(planner);
    }
  }

  Result<Outcome> keep_everything() const {
    Problem everything = problem_;
    everything.budget.reset();
    return solve_addressed(own_planner("keep_all"), everything, addresses_, limits_);
  }

  // One plan for each budget that has one, on all cores.
  Status meet_all(const std::vector<Bytes>& budgets, PlanCurve& curve) const {
    if (planners_.empty()) return {};
    const auto count = static_cast<double>(budgets.size());
    const double at_once = std::min(count, static_cast<double>(available_threads()));
    std::vector<std::optional<Result<Outcome>>> found(budgets.size());
    Progress progress({.stage = "plan",
                       .subject = "for all that a job may be given",
                       .pieces = "budgets",
                       .total = budgets.size()});
    parallel_for(budgets.size(), 0, [&](std::size_t i) {
      found[i] = meet(budgets[i], kFirstBudgetsTimeFraction * limits_.seconds * at_once / count);
      progress.advance();
    });
    for (auto& outcome : found) {
      REGEN_TRY(outcome->ok() ? Status() : Status(outcome->error()));
      if (has_plan(**outcome)) curve.add(std::move(**outcome));
    }
    return {};
  }

  // Bisection below the least that has a plan, down to the bound.
  Status descend(Bytes bound, int steps, PlanCurve& curve) const {
    if (planners_.empty() || curve.plans().empty()) return {};
    Bytes high = curve.plans().front().simulation.peak_bytes;
    Bytes missed = bound - 1;
    for (; steps > 0 && high - missed > addresses_.alignment && !clock_.exhausted(); --steps) {
      const Bytes middle = missed + (high - missed) / 2;
      REGEN_ASSIGN(Outcome outcome, meet(middle, clock_.seconds_left() / steps));
      (has_plan(outcome) ? high : missed) = middle;
      if (has_plan(outcome)) curve.add(std::move(outcome));
    }
    return {};
  }

 private:
  Result<Outcome> meet(Bytes budget, double seconds) const {
    Problem problem = problem_;
    problem.budget = budget;
    Limits limits = limits_;
    limits.seconds = std::max(0.0, seconds);
    return best_addressed(planners_, problem, addresses_, limits);
  }

  std::vector<const Planner*> planners_;
  const Problem& problem_;
  const AddressOptions& addresses_;
  const Limits& limits_;
  const Effort clock_;  // of the whole; its work is not counted
};

}  // namespace

Result<PlanCurve> PlanCurve::make(std::span<const Planner* const> planners, const Problem& problem,
                                  const AddressOptions& addresses, const Limits& limits,
                                  const PlanCurveOptions& options) {
  PlanCurve curve;
  const CurveSearch search(planners, problem, addresses, limits);
  REGEN_ASSIGN(Outcome kept, search.keep_everything());
  const Bytes low = structural_bound(*problem.graph).bytes;
  const Bytes everything =
      std::max(live_bytes_keep_all(*problem.graph).peak_bytes, kept.simulation.peak_bytes);
  const Bytes high = std::min(everything, problem.budget.value_or(everything));
  if (has_plan(kept) && within_limits(problem, kept.simulation)) curve.add(std::move(kept));
  if (high < low) return curve;
  // The bound itself takes long to search for, and is seldom met.
  std::vector<Bytes> budgets;
  const auto count = static_cast<Bytes>(std::max<std::size_t>(options.points, 1));
  for (Bytes i = 0; i < count; ++i) budgets.push_back(high - (high - low) * i / count);
  REGEN_TRY(search.meet_all(budgets, curve));
  REGEN_TRY(search.descend(low, options.last_steps, curve));
  return curve;
}

void PlanCurve::add(Outcome outcome) {
  const auto bytes = [](const Outcome& plan) { return plan.simulation.peak_bytes; };
  const auto cost = [](const Outcome& plan) { return plan.simulation.cost; };
  const Outcome* present = within(bytes(outcome));
  if (present != nullptr && cost(*present) <= cost(outcome)) return;
  std::erase_if(plans_, [&](const Outcome& other) {
    return bytes(other) >= bytes(outcome) && cost(other) >= cost(outcome);
  });
  const auto place = std::ranges::upper_bound(plans_, bytes(outcome), {}, bytes);
  plans_.insert(place, std::move(outcome));
}

const Outcome* PlanCurve::within(Bytes bytes) const {
  const Outcome* best = nullptr;
  for (const Outcome& plan : plans_) {
    if (plan.simulation.peak_bytes <= bytes) best = &plan;
  }
  return best;
}

}  // namespace regen::search
