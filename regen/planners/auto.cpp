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

#include "regen/plan/explain.h"
#include "regen/plan/whereabouts.h"
#include "regen/planners/checkpoint_plan.h"
#include "regen/planners/covering_bound.h"
#include "regen/planners/gap_search.h"
#include "regen/planners/planner_list.h"
#include "regen/planners/recompute.h"
#include "regen/planners/variant_view.h"

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
constexpr double kBoundShare = 0.3;                  // of what the quick ones leave
constexpr double kEveryOrderShare = 0.02;            // of all that there was
constexpr std::size_t kMostOpsInEveryOrder = 3'000;  // beyond these its tables are too large

// Of a search that was given no limit; about 8 seconds.
constexpr std::int64_t kDefaultWork = 8'000'000;
// Costs that differ by less are the same up to rounding.
constexpr double kSame = 1e-9;

class Auto {
 public:
  // The bound is about `original`, of which the problem's graph may be a view.
  Auto(const Problem& problem, const Graph& original, Effort& effort)
      : problem_(problem),
        original_(original),
        quiet_(problem),
        graph_(*problem.graph),
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
  Limits share_of_rest(double share) const {
    Limits limits = effort_.limits();
    limits.seconds = std::max(0.0, effort_.seconds_left()) * share;
    const auto work = static_cast<double>(std::max<std::int64_t>(0, effort_.work_left()));
    if (limits.work != Limits{}.work) limits.work = static_cast<std::int64_t>(work * share);
    return limits;
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
    Effort own(share_of_rest(kBoundShare));
    const CoveringBound bound = covering_bound(original_, problem_.link, *problem_.budget, own);
    effort_.add(own.work());
    if (std::isfinite(bound.cost)) bound_ = std::max(bound_, bound.cost);
    if (best_.best() && !keeps_order(best_.best()->plan)) bound_of_every_order(kBoundShare);
    search.start_from_hints(bound.again);
    take(search);
    tell();
  }

  Status ask(const Proposer& proposer, GapSearch* search) {
    auto outcome = solve(proposer.name, quiet_, share_of_rest(proposer.share));
    if (!outcome.ok()) return {};  // a graph that this one cannot take
    effort_.add(outcome->work);
    // Its bound is for the same plans as ours: any movement, first runs in the order of the graph.
    const bool same_plans = std::string_view(proposer.name) == "str" && &original_ == &graph_;
    if (same_plans) bound_ = std::max(bound_, outcome->lower_bound);
    if (!outcome->plan) return {};
    if (search != nullptr) search->start_from(*outcome->plan);
    best_.offer({std::move(*outcome->plan), outcome->simulation, std::string(proposer.name)});
    return {};
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
    if (!problem_.observer || !best_.best() || !keeps_order(best_.best()->plan)) return;
    if (!within_limits(problem_, best_.best()->simulation)) return;
    const double cost = best_.best()->simulation.cost;
    problem_.observer(effort_.seconds(), cost, std::min(bound_, cost));
  }

  bool nothing_better() const {
    return best_.best() && within_limits(problem_, best_.best()->simulation) &&
           best_.best()->simulation.cost <= std::max(bound_, least_cost_) * (1 + kSame);
  }

  Result<Proposal> proposal() {
    const Simulation simulation = best_.best() ? best_.best()->simulation : Simulation{};
    const double cost = simulation.cost;
    Proposal proposal = std::move(best_).proposal("no planner found anything");
    if (!proposal.plan) return proposal;
    const bool in_order = keeps_order(*proposal.plan);
    const double bound = in_order ? bound_ : bound_of_every_order(/*share=*/1);
    proposal.lower_bound = std::min(bound, cost);
    proposal.bound_kind = in_order ? BoundKind::kOrder : BoundKind::kEveryPlan;
    const bool fits = within_limits(problem_, simulation);
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
    Limits limits = share_of_rest(share);
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
  Effort& effort_;
  BestCandidate best_;
  double bound_ = 0;
  std::optional<double> every_order_bound_;
  double least_cost_ = 0;  // of every op once, each in its cheapest way
};

// Chooses among alternatives that differ in cost and workspace: the fastest within a cap, the same
// for all ops, that a first plan says is best; then faster ones wherever that plan has room.
class VariantChoice {
 public:
  VariantChoice(const Problem& problem, Effort& effort)
      : problem_(problem), graph_(*problem.graph), effort_(effort) {
    problem_.observer = nullptr;
  }

  Result<VariantView> best() {
    for (const Bytes cap : caps()) {
      IdVector<OpId, VariantId> chosen(graph_.num_ops());
      for (OpId op : graph_.ops()) chosen[op] = fastest_within(graph_, op, cap);
      REGEN_TRY(offer(std::move(chosen)));
    }
    if (!stage_bytes_.empty()) REGEN_TRY(offer(with_room_used()));
    return std::move(*view_);
  }

 private:
  // All workspaces, or some of them from the smallest to the largest.
  std::vector<Bytes> caps() const {
    std::vector<Bytes> sizes;
    for (OpId op : graph_.ops()) {
      for (VariantId v : plain_alternatives(graph_, op)) sizes.push_back(graph_.workspace(v));
    }
    std::ranges::sort(sizes, std::ranges::greater{});
    const auto rest = std::ranges::unique(sizes);
    sizes.erase(rest.begin(), rest.end());
    std::vector<Bytes> some;
    for (std::size_t i = 0; i < kMostCaps; ++i) {
      some.push_back(sizes[i * (sizes.size() - 1) / (kMostCaps - 1)]);
    }
    const auto repeated = std::ranges::unique(some);
    some.erase(repeated.begin(), repeated.end());
    return some;
  }

  Status offer(IdVector<OpId, VariantId> chosen) {
    if (view_ && effort_.exhausted()) return {};
    REGEN_ASSIGN(VariantView view, VariantView::make(graph_, std::move(chosen)));
    Problem problem = problem_;
    problem.graph = &view.graph();
    const bool fits = structural_bound(view.graph()).bytes <= *problem.budget &&
                      check_sequences_possible(view.graph()).ok();
    std::optional<GapPlan> plan;
    if (fits) {
      GapSearch search(problem, effort_);
      search.start();
      plan = search.best();
    }
    // Without a plan the smaller workspaces are the better choice.
    const double cost = plan ? plan->cost : std::numeric_limits<double>::infinity();
    if (view_ && (cost > cost_ || (cost == cost_ && plan))) return {};
    cost_ = cost;
    stage_bytes_ = plan ? std::move(plan->stage_bytes) : std::vector<Bytes>();
    view_ = std::move(view);
    return {};
  }

  IdVector<OpId, VariantId> with_room_used() const {
    IdVector<OpId, VariantId> chosen = view_->chosen();
    for (OpId op : graph_.ops()) {
      const Bytes room = *problem_.budget - stage_bytes_[op.index()];
      chosen[op] = fastest_within(graph_, op, graph_.workspace(chosen[op]) + room);
    }
    return chosen;
  }

  static constexpr std::size_t kMostCaps = 12;
  Problem problem_;
  const Graph& graph_;
  Effort& effort_;
  std::optional<VariantView> view_;
  double cost_ = std::numeric_limits<double>::infinity();
  std::vector<Bytes> stage_bytes_;
};

bool has_alternatives(const Graph& graph) {
  return std::ranges::any_of(graph.ops(),
                             [&](OpId op) { return plain_alternatives(graph, op).size() > 1; });
}

Result<Proposal> decide(const Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  if (!problem.budget || !has_alternatives(graph)) return Auto(problem, graph, effort).run();
  REGEN_ASSIGN(const VariantView view, VariantChoice(problem, effort).best());
  Problem inner = problem;
  inner.graph = &view.graph();
  REGEN_ASSIGN(Proposal proposal, Auto(inner, graph, effort).run());
  if (proposal.plan) proposal.plan = view.original(std::move(*proposal.plan));
  return proposal;
}

}  // namespace

Result<Proposal> plan_auto(const Problem& problem, Effort& effort) {
  if (problem.options.accounting != Accounting::kPlain) {
    return bad_input("planner auto counts memory in one way only, expected accounting plain");
  }
  Limits limits = effort.limits();
  const bool unlimited = std::isinf(limits.seconds) && limits.work == Limits{}.work;
  if (!unlimited) return decide(problem, effort);
  limits.work = kDefaultWork;
  Effort own(limits);
  auto proposal = decide(problem, own);
  effort.add(own.work());
  return proposal;
}

}  // namespace regen
