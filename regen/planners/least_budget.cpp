#include "regen/planners/least_budget.h"

#include <algorithm>
#include <array>
#include <utility>

#include "regen/graph/analysis.h"
#include "regen/plan/explain.h"
#include "regen/planners/variant_choice.h"
#include "regen/simulate/simulate.h"

namespace regen {
namespace {

// Who goes before auto, those that are quick first.
constexpr std::array<std::string_view, 4> kGoodAtLittle{"chain", "vdnn", "lower_sets_approx",
                                                        "checkmate"};
// Of a planner that was given no limit, for each budget; a fraction of a second.
constexpr std::int64_t kMostWork = 100'000;
// Bisection ends at this part of the span. The last steps are single budgets.
constexpr Bytes kParts = 256;
constexpr int kLastSteps = 16;

class LeastBudget {
 public:
  LeastBudget(const Problem& problem, const AddressOptions& options, const Limits& limits)
      : problem_(problem),
        options_(options),
        limits_(limits),
        clock_(limits),
        bound_(structural_bound(*problem.graph).bytes) {
    limits_.work = std::min(limits_.work, kMostWork);
  }

  Status begin() {
    Problem everything = problem_;
    everything.budget.reset();
    REGEN_ASSIGN(best_, solve_addressed("keep_all", everything, options_, limits_));
    high_ = std::max(live_bytes_keep_all(*problem_.graph).peak_bytes, best_.simulation.peak_bytes);
    return {};
  }

  // Goes below what is known as far as this planner can.
  Status descend(std::string_view planner) {
    Bytes low = bound_;
    REGEN_ASSIGN(bool met, meets(planner, low));
    if (met) return {};
    const Bytes precision = std::max(options_.alignment, (high_ - low) / kParts);
    REGEN_ASSIGN(met, meets(planner, high_ - 1));
    while (met && high_ - low > precision) {
      const Bytes middle = low + (high_ - low) / 2;
      REGEN_ASSIGN(const bool lower, meets(planner, middle));
      if (!lower) low = middle;
    }
    for (int i = 0; met && i < kLastSteps; ++i) {
      REGEN_ASSIGN(met, meets(planner, high_ - 1));
    }
    return {};
  }

  Outcome take() && { return std::move(best_); }

 private:
  // True when the planner finds a plan within so many bytes, which is then the best known.
  Result<bool> meets(std::string_view planner, Bytes budget) {
    if (budget < bound_ || clock_.exhausted()) return false;
    Problem problem = problem_;
    problem.budget = budget;
    Limits limits = limits_;
    limits.seconds = std::max(0.0, clock_.seconds_left());
    REGEN_ASSIGN(Outcome outcome, solve_addressed(planner, problem, options_, limits));
    if (!has_plan(outcome)) return false;
    best_ = std::move(outcome);
    high_ = best_.simulation.peak_bytes;
    return true;
  }

  const Problem& problem_;
  const AddressOptions& options_;
  Limits limits_;
  const Effort clock_;  // of the whole; its work is not counted
  Bytes bound_;
  Bytes high_ = 0;  // the least that is known to work; at first, keeping everything
  Outcome best_;
};

Result<Outcome> least_of_graph(std::string_view planner, const Problem& problem,
                               const AddressOptions& options, const Limits& limits) {
  LeastBudget search(problem, options, limits);
  REGEN_TRY(search.begin());
  if (planner == "auto") {
    // One that cannot take the graph has nothing to say.
    for (const std::string_view name : kGoodAtLittle) (void)search.descend(name);
  }
  REGEN_TRY(search.descend(planner));
  return std::move(search).take();
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
  REGEN_ASSIGN(outcome.simulation, simulate(graph, *outcome.plan, {.link = problem.link}));
  return outcome;
}

}  // namespace

Result<Outcome> least_budget(std::string_view planner, const Problem& problem,
                             const AddressOptions& options, const Limits& limits) {
  const bool one_way = variant_decisions(*problem.graph).empty();
  return one_way ? least_of_graph(planner, problem, options, limits)
                 : least_of_smallest(planner, problem, options, limits);
}

}  // namespace regen
