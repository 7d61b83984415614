// All decisions together. Quick planners and a search over gaps and movement propose; what they
// find is improved until the time is up; a program over what must be dropped says how much better
// any plan could be.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "regen/plan/explain.h"
#include "regen/plan/whereabouts.h"
#include "regen/planners/checkpoint_plan.h"
#include "regen/planners/covering_bound.h"
#include "regen/planners/gap_search.h"
#include "regen/planners/planner_list.h"
#include "regen/planners/recompute.h"
#include "regen/planners/variant_choice.h"
#include "regen/planners/variant_refinement.h"

namespace regen {
namespace {

// Who may propose, and for which part of the time that is left. Those that end by themselves come
// first.
struct Proposer {
  const char* name;
  double share;
  std::size_t most_ops;  // beyond these it finds nothing in time
};
constexpr Proposer kQuickProposers[] = {
    {"keep_all", 0.1, SIZE_MAX},       {"vdnn", 0.1, SIZE_MAX},
    {"chen_greedy", 0.1, 20'000},      {"chain", 0.1, 20'000},
    {"superneurons", 0.1, 20'000},     {"capuchin", 0.1, 4'000},
    {"lower_sets_approx", 0.1, 4'000}, {"chen_greedy_noap", 0.1, 2'000},
    {"griewank", 0.1, 2'000},          {"last_node", 0.1, 300},
    {"lower_sets", 0.1, 300},
};
constexpr Proposer kSlowProposers[] = {
    {"checkmate", 0.3, 1'500},
    {"str", 0.3, 200},
    {"checkmate_lp", 0.2, 100},
    {"str_lp", 0.2, 100},
};
// Asked before anything else that takes long while no plan fits: rounding finds some where searches
// end above the budget.
constexpr Proposer kRescuers[] = {
    {"checkmate_lp", 0.6, 100},
    {"str_lp", 0.4, 100},
};
constexpr double kBoundShare = 0.3;                  // of what the quick ones leave
constexpr double kEveryOrderShare = 0.02;            // of all that there was
constexpr std::size_t kMostOpsInEveryOrder = 3'000;  // beyond these its tables are too large
// Of the effort, where ops have several ways to run: for those that a first plan chose.
constexpr double kChosenShare = 0.5;
// Up to this many ops the exact search comes to its end by itself, and may do so where nobody set a
// limit.
constexpr std::size_t kMostExactOps = 20;

// Of a search that was given no limit; about 8 seconds.
constexpr std::int64_t kDefaultWork = 8'000'000;
// Costs that differ by less are the same up to rounding.
constexpr double kSame = 1e-9;
// A bound that says that there is none.
constexpr double kNoPlan = std::numeric_limits<double>::infinity();

// A part of what is left of an effort.
Limits share_of(const Effort& effort, double share) {
  Limits limits = effort.limits();
  limits.seconds = std::max(0.0, effort.seconds_left()) * share;
  const auto work = static_cast<double>(std::max<std::int64_t>(0, effort.work_left()));
  if (limits.work != Limits{}.work) limits.work = static_cast<std::int64_t>(work * share);
  return limits;
}

class Auto {
 public:
  // The bound is about `original`, of which the problem's graph may be a view.
  Auto(const Problem& problem, const Graph& original, bool unlimited, Effort& effort)
      : problem_(problem),
        original_(original),
        quiet_(problem),
        graph_(*problem.graph),
        unlimited_(unlimited),
        effort_(effort),
        best_(problem) {
    quiet_.observer = nullptr;
    for (OpId op : original.ops()) {
      double least = std::numeric_limits<double>::infinity();
      for (VariantId v : original.variants(op)) least = std::min(least, original.cost(v));
      least_cost_ += least;
    }
  }

  Result<Proposal> run() {
    if (!problem_.budget) return plan_keep_all(problem_, effort_);
    std::optional<GapSearch> search;
    if (check_sequences_possible(graph_).ok()) {
      search.emplace(quiet_, effort_);
      search->start();
      take(*search);
    }
    REGEN_TRY(ask_all(kQuickProposers, search ? &*search : nullptr));
    if (!fits()) REGEN_TRY(ask_all(kRescuers, search ? &*search : nullptr));
    if (search && !nothing_better()) {
      find_bound(*search);
      REGEN_TRY(ask_all(kSlowProposers, &*search));
      search->improve(problem_.options.seed, bound_ * (1 + kSame));
      take(*search);
      tell();
    }
    return proposal();
  }

 private:
  Limits limits_of(const Proposer& proposer) const {
    const bool to_the_end = unlimited_ && graph_.num_ops() <= kMostExactOps;
    if (!to_the_end || std::string_view(proposer.name) != "str") {
      return share_of(effort_, proposer.share);
    }
    return {.interrupt = effort_.limits().interrupt, .enough = effort_.limits().enough};
  }

  Status ask_all(std::span<const Proposer> proposers, GapSearch* search) {
    for (const Proposer& proposer : proposers) {
      if (graph_.num_ops() > proposer.most_ops && best_.best()) continue;
      if (nothing_better()) break;
      REGEN_TRY(ask(proposer, search));
    }
    return {};
  }

  void find_bound(GapSearch& search) {
    Effort own(share_of(effort_, kBoundShare));
    const CoveringBound bound = covering_bound(original_, problem_.link, *problem_.budget, own);
    effort_.add(own.work());
    if (std::isfinite(bound.cost)) bound_ = std::max(bound_, bound.cost);
    if (best_.best() && !keeps_order(best_.best()->plan)) bound_of_every_order(kBoundShare);
    search.start_from_hints(bound.again);
    take(search);
    tell();
  }

  Status ask(const Proposer& proposer, GapSearch* search) {
    auto outcome = solve(proposer.name, quiet_, limits_of(proposer));
    if (!outcome.ok()) return {};  // a graph that this one cannot take
    effort_.add(outcome->work);
    // Its bound is for the same plans as ours: any movement, first runs in the order of the graph.
    const bool same_plans = std::string_view(proposer.name) == "str" && &original_ == &graph_;
    if (same_plans) bound_ = std::max(bound_, outcome->lower_bound);
    if (same_plans && outcome->status == PlanStatus::kInfeasible) bound_ = kNoPlan;
    if (!outcome->plan || !allowed(*outcome->plan)) return {};
    if (search != nullptr) search->start_from(*outcome->plan);
    best_.offer({std::move(*outcome->plan), outcome->simulation, std::string(proposer.name)});
    return {};
  }

  // Not every planner asks whether gradients may be made twice.
  bool allowed(const Plan& plan) const {
    if (problem_.options.recompute_gradients) return true;
    IdVector<OpId, char> ran(graph_.num_ops(), 0);
    return std::ranges::none_of(plan.steps, [&](const Step& step) {
      if (step.kind() != StepKind::kCompute || graph_.phase(step.op()) == Phase::kForward) {
        return false;
      }
      return std::exchange(ran[step.op()], 1) != 0;
    });
  }

  void take(const GapSearch& search) {
    if (!search.best()) return;
    Candidate candidate{.plan = {.steps = search.best()->steps}, .note = "search over gaps"};
    auto simulation = simulate(graph_, candidate.plan, {.link = problem_.link});
    if (!simulation.ok()) return;
    candidate.simulation = *simulation;
    best_.offer(std::move(candidate));
  }

  void tell() const {
    if (!problem_.observer || !fits() || !keeps_order(best_.best()->plan)) return;
    const double cost = best_.best()->simulation.cost;
    problem_.observer(effort_.seconds(), cost, std::min(bound_, cost));
  }

  bool fits() const { return best_.best() && within_limits(problem_, best_.best()->simulation); }

  bool nothing_better() const {
    return fits() && best_.best()->simulation.cost <= std::max(bound_, least_cost_) * (1 + kSame);
  }

  Result<Proposal> proposal() {
    const Simulation simulation = best_.best() ? best_.best()->simulation : Simulation{};
    const double cost = simulation.cost;
    Proposal proposal = std::move(best_).proposal("no planner found anything");
    if (!proposal.plan) return proposal;
    const bool in_order = keeps_order(*proposal.plan);
    const double bound = in_order ? bound_ : bound_of_every_order(/*share=*/1);
    const bool fits = within_limits(problem_, simulation);
    if (!fits && bound_ == kNoPlan) {
      return Proposal{.status = PlanStatus::kInfeasible,
                      .bound_kind = BoundKind::kOrder,
                      .note = "no plan in the order of the graph fits"};
    }
    proposal.lower_bound = fits ? std::min(bound, cost) : bound;
    proposal.bound_kind = in_order ? BoundKind::kOrder : BoundKind::kEveryPlan;
    if (fits && cost <= std::max(bound, least_cost_) * (1 + kSame)) {
      proposal.status = PlanStatus::kOptimal;
    }
    return proposal;
  }

  // Only asked for where the best plan has an order of its own: when the other bound is, or at the
  // end, and then with a little time even if nothing is left.
  double bound_of_every_order(double share) {
    if (every_order_bound_) return *every_order_bound_;
    every_order_bound_ = 0;
    if (original_.num_ops() > kMostOpsInEveryOrder) return 0;
    Limits limits = share_of(effort_, share);
    limits.seconds = std::max(limits.seconds, effort_.limits().seconds * kEveryOrderShare);
    const auto work = static_cast<double>(effort_.limits().work) * kEveryOrderShare;
    limits.work = std::max(limits.work, static_cast<std::int64_t>(work));
    Effort own(limits);
    const LivenessInEveryOrder live(original_);
    const CoveringBound bound = covering_bound(live, problem_.link, *problem_.budget, own);
    effort_.add(own.work());
    if (std::isfinite(bound.cost)) every_order_bound_ = bound.cost;
    return *every_order_bound_;
  }

  const Problem& problem_;
  const Graph& original_;
  Problem quiet_;  // the same for those who are asked: only what is best of all is told
  const Graph& graph_;
  bool unlimited_;  // the effort's limits are our own, not the caller's
  Effort& effort_;
  BestCandidate best_;
  double bound_ = 0;
  std::optional<double> every_order_bound_;
  double least_cost_ = 0;  // of every op once, each in its cheapest way
};

// Plans a graph with one way for each op, and then lets each run take the fastest that fits.
Result<Proposal> decide_in_view(const Problem& problem, const VariantView& view, bool unlimited,
                                Effort& effort) {
  const Graph& graph = *problem.graph;
  Problem inner = problem;
  inner.graph = &view.graph();
  REGEN_ASSIGN(Proposal proposal, Auto(inner, graph, unlimited, effort).run());
  if (!proposal.plan) return proposal;
  REGEN_ASSIGN(proposal.plan, with_fastest_variants(graph, view.original(std::move(*proposal.plan)),
                                                    problem.link, *problem.budget));
  return proposal;
}

// Whether the first is the better one, as the simulator sees it.
Result<bool> better(const Problem& problem, const Proposal& a, const Proposal& b) {
  if (!a.plan || !b.plan) return a.plan.has_value();
  REGEN_ASSIGN(const Simulation of_a, simulate(*problem.graph, *a.plan, {.link = problem.link}));
  REGEN_ASSIGN(const Simulation of_b, simulate(*problem.graph, *b.plan, {.link = problem.link}));
  const bool a_fits = within_limits(problem, of_a);
  const bool b_fits = within_limits(problem, of_b);
  if (a_fits != b_fits) return a_fits;
  return a_fits ? of_a.cost < of_b.cost : of_a.peak_bytes < of_b.peak_bytes;
}

// With the ways that were chosen for a first plan, and with those that all other planners take.
Result<Proposal> decide_with_variants(const Problem& problem, bool unlimited, Effort& effort) {
  const Graph& graph = *problem.graph;
  REGEN_ASSIGN(const VariantView view, choose_variants(problem, effort));
  IdVector<OpId, VariantId> base(graph.num_ops());
  for (OpId op : graph.ops()) base[op] = base_variant(graph, op);
  if (view.chosen() == base) return decide_in_view(problem, view, unlimited, effort);
  Effort first(share_of(effort, kChosenShare));
  REGEN_ASSIGN(Proposal chosen, decide_in_view(problem, view, unlimited, first));
  effort.add(first.work());
  if (chosen.status == PlanStatus::kOptimal) return chosen;
  REGEN_ASSIGN(const VariantView base_view, VariantView::make(graph, std::move(base)));
  REGEN_ASSIGN(Proposal other, decide_in_view(problem, base_view, unlimited, effort));
  const double bound = std::max(chosen.lower_bound, other.lower_bound);
  REGEN_ASSIGN(const bool other_is_better, better(problem, other, chosen));
  if (other_is_better) std::swap(chosen, other);
  if (chosen.bound_kind == other.bound_kind) chosen.lower_bound = bound;
  return chosen;
}

Result<Proposal> decide(const Problem& problem, bool unlimited, Effort& effort) {
  const Graph& graph = *problem.graph;
  if (!problem.budget || variant_decisions(graph).empty()) {
    return Auto(problem, graph, unlimited, effort).run();
  }
  if (few_choices(graph)) {
    return plan_every_choice(problem, effort, [&](const Problem& one, Effort& own) {
      return Auto(one, *one.graph, unlimited, own).run();
    });
  }
  return decide_with_variants(problem, unlimited, effort);
}

}  // namespace

Result<Proposal> plan_auto(const Problem& problem, Effort& effort) {
  if (problem.options.accounting != Accounting::kPlain) {
    return bad_input("planner auto counts memory in one way only, expected accounting plain");
  }
  Limits limits = effort.limits();
  const bool unlimited = std::isinf(limits.seconds) && limits.work == Limits{}.work;
  if (!unlimited) return decide(problem, false, effort);
  limits.work = kDefaultWork;
  Effort own(limits);
  auto proposal = decide(problem, true, own);
  effort.add(own.work());
  return proposal;
}

}  // namespace regen
