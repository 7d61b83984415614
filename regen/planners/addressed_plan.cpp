#include "regen/planners/addressed_plan.h"

#include <algorithm>
#include <utility>

#include "regen/graph/analysis.h"
#include "regen/plan/addresses.h"
#include "regen/plan/explain.h"
#include "regen/planners/variant_choice.h"

namespace regen {
namespace {

constexpr int kTries = 6;

bool has_plan(const Outcome& outcome) {
  return outcome.plan.has_value() &&
         (outcome.status == PlanStatus::kOptimal || outcome.status == PlanStatus::kFeasible);
}

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
                             Outcome& outcome) {
  const Graph& graph = *problem.graph;
  PackOptions pack_options;
  pack_options.alignment = options.alignment;
  pack_options.limits.work = options.pack_work;
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

Result<Outcome> least_of_graph(std::string_view planner, Problem problem,
                               const AddressOptions& options, const Limits& limits) {
  const Graph& graph = *problem.graph;
  Bytes low = structural_bound(graph).bytes;
  Bytes high = live_bytes_keep_all(graph).peak_bytes;
  problem.budget = low;
  REGEN_ASSIGN(Outcome best, solve_addressed(planner, problem, options, limits));
  if (has_plan(best)) return best;
  problem.budget.reset();
  REGEN_ASSIGN(best, solve_addressed("keep_all", problem, options, limits));
  high = std::max(high, best.simulation.peak_bytes);
  const Bytes precision = std::max<Bytes>(options.alignment, (high - low) / 100);
  while (high - low > precision) {
    problem.budget = low + (high - low) / 2;
    REGEN_ASSIGN(Outcome next, solve_addressed(planner, problem, options, limits));
    if (has_plan(next)) {
      high = std::min(*problem.budget, next.simulation.peak_bytes);
      best = std::move(next);
    } else {
      low = *problem.budget;
    }
  }
  return best;
}

// Planners that know of one way for each op are given the way with the least workspace.
Result<Outcome> least_of_smallest(std::string_view planner, const Problem& problem,
                                  const AddressOptions& options, const Limits& limits) {
  const Graph& graph = *problem.graph;
  REGEN_ASSIGN(const VariantView view, VariantView::make(graph, smallest_choice(graph)));
  Problem inner = problem;
  inner.graph = &view.graph();
  REGEN_ASSIGN(Outcome outcome, least_of_graph(planner, inner, options, limits));
  if (!outcome.plan) return outcome;
  outcome.plan = view.original(std::move(*outcome.plan));
  outcome.plan->fingerprint = graph.fingerprint();
  outcome.base_cost = graph.base_cost();
  outcome.lower_bound = 0;  // it was one for that choice
  outcome.gap = 1;
  REGEN_TRY(judge_again(problem, outcome));
  return outcome;
}

}  // namespace

Result<Outcome> solve_addressed(std::string_view planner, const Problem& problem,
                                const AddressOptions& options, const Limits& limits) {
  Problem tighter = problem;
  Outcome last;
  for (int i = 0; i < kTries; ++i) {
    REGEN_ASSIGN(last, solve(planner, tighter, limits));
    if (!has_plan(last)) break;
    REGEN_ASSIGN(const Bytes excess, give_addresses(problem, options, last));
    if (excess == 0) return last;
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

Result<Outcome> least_budget(std::string_view planner, Problem problem,
                             const AddressOptions& options, const Limits& limits) {
  if (variant_decisions(*problem.graph).empty()) {
    return least_of_graph(planner, std::move(problem), options, limits);
  }
  return least_of_smallest(planner, problem, options, limits);
}

}  // namespace regen
