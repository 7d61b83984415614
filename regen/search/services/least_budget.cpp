#include "regen/search/services/least_budget.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "regen/base/progress/progress.h"
#include "regen/graph/analysis.h"
#include "regen/plan/explain.h"
#include "regen/search/portfolio/variant_choice.h"
#include "regen/search/registry.h"
#include "regen/simulate/simulate.h"

namespace regen::search {
namespace {

// Planners that run before auto, the fastest first.
constexpr std::array<std::string_view, 4> kSmallBudgetPlanners{"chain", "vdnn", "lower_sets_approx",
                                                               "checkmate"};
// Counted work for each budget where the caller gave no limit: a fraction of a second.
constexpr std::int64_t kDefaultWorkPerBudget = 100'000;
// Bisection ends at this part of the range of budgets.
constexpr Bytes kBisectionParts = 256;
// Budgets tried below what bisection found. A search that fails at some bytes may succeed at fewer.
constexpr int kLastSteps = 64;

class LeastBudget {
 public:
  LeastBudget(const Problem& problem, const AddressOptions& options, const Limits& limits)
      : problem_(problem),
        options_(options),
        limits_(limits),
        clock_(limits),
        bound_(structural_bound(*problem.graph).bytes) {
    limits_.work = std::min(limits_.work, kDefaultWorkPerBudget);
  }

  Status begin() {
    Problem everything = problem_;
    everything.budget.reset();
    REGEN_ASSIGN(best_, solve_addressed(own_planner("keep_all"), everything, options_, limits_));
    everything_ =
        std::max(live_bytes_keep_all(*problem_.graph).peak_bytes, best_.simulation.peak_bytes);
    least_ = everything_;
    return {};
  }

  // Goes down as far as this planner can. From the top, whatever others have found: one that
  // cannot do a little better than they may still do much better, since none is sure of what it
  // does.
  Status descend(const Planner& planner) {
    Bytes low = bound_;
    Bytes high = everything_;
    REGEN_ASSIGN(std::optional<Bytes> met, meets(planner, low));
    if (met) return {};
    const Bytes precision = std::max(options_.alignment, (high - low) / kBisectionParts);
    while (high - low > precision) {
      const Bytes middle = low + (high - low) / 2;
      REGEN_ASSIGN(met, meets(planner, middle));
      (met ? high : low) = met.value_or(middle);
    }
    return descend_further(planner);
  }

  // From the least that is known, in steps that double while the planner succeeds, until a step of
  // one byte fails.
  Status descend_further(const Planner& planner) {
    Bytes step = 1;
    for (int i = 0; i < kLastSteps; ++i) {
      REGEN_ASSIGN(const std::optional<Bytes> met, meets(planner, std::max(bound_, least_ - step)));
      if (!met && step == 1) break;
      step = met ? 2 * step : 1;
      if (least_ == bound_) break;
    }
    return {};
  }

  Outcome take() && { return std::move(best_); }

 private:
  // What the plan takes that the planner finds within so many bytes, if it does.
  Result<std::optional<Bytes>> meets(const Planner& planner, Bytes budget) {
    if (budget < bound_ || clock_.exhausted()) return std::optional<Bytes>();
    Problem problem = problem_;
    problem.budget = budget;
    Limits limits = limits_;
    limits.seconds = std::max(0.0, clock_.seconds_left());
    REGEN_ASSIGN(Outcome outcome, solve_addressed(planner, problem, options_, limits));
    if (!has_plan(outcome)) return std::optional<Bytes>();
    const Bytes peak = outcome.simulation.peak_bytes;
    if (peak < least_) {
      least_ = peak;
      best_ = std::move(outcome);
      progress_.say(format_bytes(least_) + " so far");
    }
    return std::optional(peak);
  }

  const Problem& problem_;
  const AddressOptions& options_;
  Limits limits_;
  const Effort clock_;  // of the whole; its work is not counted
  Bytes bound_;
  Bytes everything_ = 0;  // for keeping everything
  Bytes least_ = 0;       // that is known to work
  Outcome best_;
  Progress progress_{{.stage = "plan", .subject = "for the least budget"}};
};

Result<Outcome> least_of_graph(const Planner& planner, const Problem& problem,
                               const AddressOptions& options, const Limits& limits) {
  LeastBudget search(problem, options, limits);
  REGEN_TRY(search.begin());
  if (planner.name == "auto") {
    // One that cannot take the graph has nothing to say.
    for (const std::string_view name : kSmallBudgetPlanners) {
      if (const Planner* first = planner_for(problem, name)) (void)search.descend(*first);
    }
  }
  REGEN_TRY(search.descend(planner));
  return std::move(search).take();
}

// Planners that take one variant for each op are given the one with the least workspace.
Result<Outcome> least_of_smallest(const Planner& planner, const Problem& problem,
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

Result<Outcome> least_budget(const Planner& planner, const Problem& problem,
                             const AddressOptions& options, const Limits& limits) {
  const bool one_way = variant_decisions(*problem.graph).empty();
  return one_way ? least_of_graph(planner, problem, options, limits)
                 : least_of_smallest(planner, problem, options, limits);
}

}  // namespace regen::search
