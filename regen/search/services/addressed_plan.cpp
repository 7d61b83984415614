#include "regen/search/services/addressed_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "regen/plan/addresses.h"
#include "regen/plan/explain.h"

namespace regen::search {
namespace {

constexpr int kTries = 6;
// Counted work for addresses, even where the search for a plan had less.
constexpr std::int64_t kLeastPackWork = 50'000;

Status judge_again(const Problem& problem, Outcome& outcome) {
  SimulateOptions options;
  options.link = problem.link;
  REGEN_ASSIGN(outcome.simulation, simulate(*problem.graph, *outcome.plan, options));
  return {};
}

// As low as it gets with little work, since bytes below the budget are of use to others; if that is
// not within the capacity, whatever is.
Result<Packing> pack_low(const std::vector<Lifetime>& lifetimes, PackOptions options) {
  const std::optional<Bytes> capacity = std::exchange(options.capacity, std::nullopt);
  const std::int64_t work = std::exchange(options.limits.work, options.limits.work / 5);
  REGEN_ASSIGN(Packing packing, pack(lifetimes, options));
  if (!capacity || packing.height <= *capacity) return packing;
  options.capacity = capacity;
  options.limits.work = work;
  return pack(lifetimes, options);
}

// The height above the capacity, or none when the plan now has addresses.
Result<Bytes> give_addresses(const Problem& problem, const AddressOptions& options,
                             const Limits& limits, Outcome& outcome) {
  const Graph& graph = *problem.graph;
  PackOptions pack_options;
  pack_options.alignment = options.alignment;
  pack_options.limits.work = std::min(options.pack_work, std::max(limits.work, kLeastPackWork));
  pack_options.limits.interrupt = limits.interrupt;
  if (problem.budget) {
    pack_options.capacity = std::max<Bytes>(0, *problem.budget - graph.fixed_bytes());
  }
  REGEN_ASSIGN(const Packing packing,
               pack_low(allocation_lifetimes(graph, *outcome.plan), pack_options));
  // The height counts, not whether the search ended: without a budget every packing will do.
  if (problem.budget && packing.height > *pack_options.capacity) {
    return packing.height - *pack_options.capacity;
  }
  outcome.plan->addresses = packing.offsets;
  REGEN_TRY(judge_again(problem, outcome));
  return Bytes{0};
}

// Where the first plan cannot be packed, those for a little less memory are looked for near it and
// with these fractions of the limits, so that the whole takes about as long as requested. The
// second has to be searched for almost as the first was: where memory is tight, what is relieved in
// one place at once makes a step much longer.
constexpr double kSecondTryEffortFraction = 0.5;
constexpr double kLaterTryEffortFraction = 0.25;

Limits limits_of_try(int number, Limits limits) {
  if (number == 0) return limits;
  const double fraction = number == 1 ? kSecondTryEffortFraction : kLaterTryEffortFraction;
  limits.seconds *= fraction;
  if (limits.work != Limits{}.work) {
    limits.work = static_cast<std::int64_t>(static_cast<double>(limits.work) * fraction);
  }
  return limits;
}

}  // namespace

bool has_plan(const Outcome& outcome) {
  return outcome.plan.has_value() &&
         (outcome.status == PlanStatus::kOptimal || outcome.status == PlanStatus::kFeasible);
}

Result<Outcome> solve_addressed(const Planner& planner, const Problem& problem,
                                const AddressOptions& options, const Limits& limits) {
  Problem tighter = problem;
  Outcome last;
  std::optional<Plan> start;
  for (int i = 0; i < kTries; ++i) {
    if (start) tighter.start = &*start;
    if (i == 1 && problem.observer) {
      // What is proven for less memory is not proven for all of it.
      tighter.observer = [&](double seconds, std::optional<double> incumbent, double) {
        problem.observer(seconds, incumbent, 0);
      };
    }
    REGEN_ASSIGN(last, solve(planner, tighter, limits_of_try(i, limits)));
    if (!has_plan(last)) break;
    REGEN_ASSIGN(const Bytes excess, give_addresses(problem, options, limits, last));
    if (excess == 0) return last;
    start = last.plan;
    tighter.budget = *tighter.budget - std::max(excess, options.alignment);
  }
  if (has_plan(last)) {
    last.status = PlanStatus::kUnknown;
    last.note = "plans were found, but no packing of their tensors fits the budget";
  } else if (tighter.budget != problem.budget && last.status == PlanStatus::kInfeasible) {
    last.status = PlanStatus::kUnknown;  // proven for the tighter budget only
  }
  return last;
}

Result<Outcome> best_addressed(std::span<const Planner* const> planners, const Problem& problem,
                               const AddressOptions& options, const Limits& limits) {
  const auto same = [&](const Planner&) { return Result<Problem>(problem); };
  return best_addressed(planners, same, options, limits);
}

Result<Outcome> best_addressed(std::span<const Planner* const> planners,
                               const ProblemFor& problem_for, const AddressOptions& options,
                               const Limits& limits) {
  Outcome best;
  for (const Planner* planner : planners) {
    REGEN_ASSIGN(const Problem problem, problem_for(*planner));
    REGEN_ASSIGN(Outcome next, solve_addressed(*planner, problem, options, limits));
    const bool cheaper = !has_plan(best) || next.simulation.cost < best.simulation.cost;
    if (!has_plan(best) || (has_plan(next) && cheaper)) best = std::move(next);
    if (planner->name == "keep_all" && has_plan(best)) break;
  }
  return best;
}

}  // namespace regen::search
