// All decisions together: in which order ops run for the first time, in which of their ways, and
// then what portfolio.h decides.
#include "regen/search/portfolio/auto.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "regen/base/tolerance.h"
#include "regen/search/build/accounting.h"
#include "regen/search/build/sequence.h"
#include "regen/search/comparison.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/judge.h"
#include "regen/search/local/local_search.h"
#include "regen/search/planner_list.h"
#include "regen/search/portfolio/opinions.h"
#include "regen/search/portfolio/order_choice.h"
#include "regen/search/portfolio/portfolio.h"
#include "regen/search/portfolio/variant_choice.h"
#include "regen/search/portfolio/variant_refinement.h"

namespace regen::search {
namespace {

// Of the effort, where another order than the graph's looks better: for that.
constexpr double kOrderFraction = 0.5;
// Of the effort, where ops have several ways to run: for those that a first plan chose.
constexpr double kChosenFraction = 0.5;
// Of a search that was given no limit; about 8 seconds.
constexpr std::int64_t kDefaultWork = 8'000'000;
// On small graphs a search begins with the whole of one that has less work, by these steps.
constexpr std::int64_t kLeastWork = 200'000;
constexpr std::int64_t kMoreWork = 8;
// Then each planner of the opinions has as much work as that search had, if all of them together
// take at most this fraction of what is left.
constexpr double kOpinionsAtMost = 0.65;

// Plans a graph with one way for each op, and then lets each run take the fastest that fits. Starts
// from the plan of another view, if there is one, or from the problem's.
Result<Proposal> decide_in_view(const Problem& problem, const VariantView& view, bool unlimited,
                                Effort& effort, const Plan* known = nullptr) {
  const Graph& graph = *problem.graph;
  Problem inner = problem;
  inner.graph = &view.graph();
  if (known == nullptr && starts_from_plan(problem)) known = problem.start;
  const Plan start = known != nullptr ? view.viewed(*known) : Plan{};
  inner.start = known != nullptr ? &start : nullptr;
  REGEN_ASSIGN(Proposal proposal, run_portfolio(inner, graph, unlimited, effort));
  if (!proposal.plan) return proposal;
  REGEN_ASSIGN(proposal.plan, with_fastest_variants(graph, view.original(std::move(*proposal.plan)),
                                                    problem.link, *problem.budget));
  return proposal;
}

// Whether the first proposal is the better one, as the simulator prices both.
Result<bool> better(const Problem& problem, const Proposal& a, const Proposal& b) {
  if (!a.plan || !b.plan) return a.plan.has_value();
  REGEN_ASSIGN(const Simulation of_a, simulate(*problem.graph, *a.plan, {.link = problem.link}));
  REGEN_ASSIGN(const Simulation of_b, simulate(*problem.graph, *b.plan, {.link = problem.link}));
  return better(problem, of_a, of_b);
}

using Ways = IdVector<OpId, VariantId>;

// Those of the first runs in a plan, where they differ from the base in cost and workspace alone.
Ways ways_of(const Graph& graph, const Plan& plan, const Ways& base) {
  Ways ways = base;
  IdVector<OpId, bool> known(graph.num_ops(), false);
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute || known[step.op()]) continue;
    known[step.op()] = true;
    const VariantId way = step.variant(graph);
    if (same_but_for_cost(graph, way, base[step.op()])) ways[step.op()] = way;
  }
  return ways;
}

// With the ways that were chosen for a first plan, and with those that all other planners take.
Result<Proposal> decide_with_two_choices(const Problem& problem, const VariantView& view,
                                         const Ways& base, bool unlimited, Effort& effort) {
  const Graph& graph = *problem.graph;
  if (view.chosen() == base) return decide_in_view(problem, view, unlimited, effort);
  Effort first(fraction_of(effort, kChosenFraction));
  REGEN_ASSIGN(Proposal chosen, decide_in_view(problem, view, unlimited, first));
  effort.add(first.work());
  if (chosen.status == PlanStatus::kOptimal) return chosen;
  REGEN_ASSIGN(const VariantView base_view, VariantView::make(graph, base));
  REGEN_ASSIGN(Proposal other, decide_in_view(problem, base_view, unlimited, effort,
                                              chosen.plan ? &*chosen.plan : nullptr));
  const double bound = std::max(chosen.lower_bound, other.lower_bound);
  REGEN_ASSIGN(const bool other_is_better, better(problem, other, chosen));
  if (other_is_better) std::swap(chosen, other);
  if (chosen.bound_kind == other.bound_kind) chosen.lower_bound = bound;
  return chosen;
}

// What is left of the effort goes to the ways that the best plan ended up with: faster ones than its
// search counted on may have found room.
Result<Proposal> decide_with_variants(const Problem& problem, bool unlimited, Effort& effort) {
  const Graph& graph = *problem.graph;
  REGEN_ASSIGN(const VariantView view, choose_variants(problem, effort));
  Ways base(graph.num_ops());
  for (OpId op : graph.ops()) base[op] = base_variant(graph, op);
  REGEN_ASSIGN(Proposal best, decide_with_two_choices(problem, view, base, unlimited, effort));
  std::vector<Ways> planned{view.chosen(), base};
  while (best.plan && best.status != PlanStatus::kOptimal && !effort.exhausted()) {
    Ways ways = ways_of(graph, *best.plan, base);
    if (std::ranges::find(planned, ways) != planned.end()) break;
    REGEN_ASSIGN(const VariantView again, VariantView::make(graph, ways));
    planned.push_back(std::move(ways));
    REGEN_ASSIGN(Proposal other,
                 decide_in_view(problem, again, /*unlimited=*/false, effort, &*best.plan));
    REGEN_ASSIGN(const bool other_is_better, better(problem, other, best));
    if (!other_is_better) break;
    best = std::move(other);
  }
  return best;
}

Result<Proposal> decide_variants(const Problem& problem, bool unlimited, Effort& effort) {
  const Graph& graph = *problem.graph;
  const bool one_variant = variant_decisions(graph).empty() || is_ablated(problem, Part::kVariants);
  if (!problem.budget || one_variant) {
    return run_portfolio(problem, graph, unlimited, effort);
  }
  if (few_choices(graph)) {
    return plan_every_choice(problem, effort, [&](const Problem& one, Effort& own) {
      return run_portfolio(one, *one.graph, unlimited, own);
    });
  }
  return decide_with_variants(problem, unlimited, effort);
}

Result<Proposal> decide(const Problem& problem, bool unlimited, Effort& effort,
                        const PlanOverChoices& choices) {
  if (problem.budget && choices) {
    // Each choice gets a fraction of the effort, so that one cannot use all of it.
    const auto plan = [](const Problem& one, Effort& own) {
      return decide_variants(one, /*unlimited=*/false, own);
    };
    REGEN_ASSIGN(std::optional<Proposal> chosen, choices(problem, effort, plan));
    if (chosen) return std::move(*chosen);
  }
  return decide_variants(problem, unlimited, effort);
}

// In the order of the graph, and in another one where that promises more.
Result<Proposal> decide_in_orders(const Problem& problem, bool unlimited, Effort& effort,
                                  const PlanOverChoices& choices) {
  std::optional<OrderView> view;
  const bool may_reorder = !problem.options.keep_order && !is_ablated(problem, Part::kOrders);
  if (problem.budget && may_reorder) view = promising_order(problem, effort);
  if (!view) return decide(problem, unlimited, effort, choices);
  Effort first(fraction_of(effort, kOrderFraction));
  Problem inner = problem;
  inner.graph = &view->graph();
  inner.observer = nullptr;  // its bounds are for that order
  REGEN_ASSIGN(Proposal other, decide(inner, unlimited, first, choices));
  effort.add(first.work());
  if (other.plan) other.plan = view->original(std::move(*other.plan));
  REGEN_ASSIGN(Proposal own, decide(problem, unlimited, effort, choices));
  REGEN_ASSIGN(const bool other_is_better, better(problem, other, own));
  if (!other_is_better) return own;
  other.note += ", in another order";
  other.bound_kind = BoundKind::kEveryPlan;
  other.lower_bound = least_cost(*problem.graph);
  if (other.status == PlanStatus::kOptimal) other.status = PlanStatus::kFeasible;
  REGEN_ASSIGN(const Simulation simulation,
               simulate(*problem.graph, *other.plan, {.link = problem.link}));
  const bool proven = at_most(simulation.cost, other.lower_bound);
  if (proven && within_limits(problem, simulation)) other.status = PlanStatus::kOptimal;
  return other;
}

Result<Proposal> decide_at_once(const Problem& problem, bool unlimited, Effort& effort,
                                const PlanOverChoices& choices) {
  Effort own(fraction_of(effort, 1 - fraction_for_opinions(*problem.graph)));
  REGEN_ASSIGN(Proposal proposal, decide_in_orders(problem, unlimited, own, choices));
  effort.add(own.work());
  return with_opinions(problem, std::move(proposal), effort);
}

// The largest step below this work; 0 if there is none, or no limit.
std::int64_t work_before(std::int64_t work) {
  if (work == Limits{}.work || work <= kLeastWork) return 0;
  std::int64_t before = kLeastWork;
  while (before * kMoreWork < work) before *= kMoreWork;
  return before;
}

Result<Proposal> with_affordable_opinions(std::int64_t work, const Problem& problem, Proposal known,
                                          Effort& effort) {
  const auto all =
      static_cast<double>(number_of_opinions(*problem.graph)) * static_cast<double>(work);
  if (all > kOpinionsAtMost * static_cast<double>(effort.work_left())) return known;
  return with_opinions_of(work, problem, std::move(known), effort);
}

// So that a search with more work is no worse than one with less, nor than a single planner with
// less: how the work is divided decides what is found, and the division for little work is
// sometimes the luckier one.
Result<Proposal> decide_step_by_step(const Problem& problem, bool unlimited, Effort& effort,
                                     const PlanOverChoices& choices) {
  const std::int64_t before = work_before(effort.limits().work);
  if (before == 0 || !problem.budget || fraction_for_opinions(*problem.graph) == 0) {
    return decide_at_once(problem, unlimited, effort, choices);
  }
  Limits limits = effort.limits();
  limits.work = before;
  Effort first(limits);
  REGEN_ASSIGN(Proposal known, decide_step_by_step(problem, /*unlimited=*/false, first, choices));
  effort.add(first.work());
  REGEN_ASSIGN(known, with_affordable_opinions(before, problem, std::move(known), effort));
  const bool settled =
      known.status == PlanStatus::kOptimal || known.status == PlanStatus::kInfeasible;
  if (settled || effort.exhausted()) return known;
  Problem next = problem;
  ++next.options.seed;
  next.observer = nullptr;
  if (known.plan) {
    known.plan->fingerprint = problem.graph->fingerprint();
    next.start = &*known.plan;
  }
  if (problem.observer) {
    next.observer = [&, passed = effort.seconds()](double seconds, std::optional<double> cost,
                                                   double bound) {
      problem.observer(passed + seconds, cost, bound);
    };
  }
  Effort rest(fraction_of(effort, 1));
  REGEN_ASSIGN(Proposal found, decide_at_once(next, unlimited, rest, choices));
  effort.add(rest.work());
  REGEN_ASSIGN(const bool known_is_better, better(problem, known, found));
  if (found.bound_kind == known.bound_kind) {
    found.lower_bound = known.lower_bound = std::max(found.lower_bound, known.lower_bound);
  }
  return known_is_better ? known : found;
}

}  // namespace

Result<Proposal> plan_auto(const Problem& problem, Effort& effort) {
  return plan_auto_over(problem, effort, {});
}

Result<Proposal> plan_auto_over(const Problem& problem, Effort& effort,
                                const PlanOverChoices& choices) {
  REGEN_TRY(expect_plain_accounting(problem, "auto"));
  Limits limits = effort.limits();
  const bool unlimited = std::isinf(limits.seconds) && limits.work == Limits{}.work;
  if (unlimited) limits.work = kDefaultWork;
  Effort all(limits);
  auto result = decide_step_by_step(problem, unlimited, all, choices);
  effort.add(all.work());
  return result;
}

}  // namespace regen::search
