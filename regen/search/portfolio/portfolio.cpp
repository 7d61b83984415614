#include "regen/search/portfolio/portfolio.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "regen/plan/explain.h"
#include "regen/plan/whereabouts.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/judge.h"
#include "regen/search/local/local_search.h"
#include "regen/search/planner_list.h"
#include "regen/search/registry.h"

namespace regen::search {
namespace {

// Who may propose, and for which part of the time that is left. Those that end by themselves come
// first.
struct Proposer {
  const char* name;
  double share;
  std::size_t most_ops;  // beyond these it finds nothing better in time
  // The same while the best plan is far from the bound, or none fits.
  std::size_t most_ops_if_far = most_ops;
};
// Costs above the bound by more than this part of it are far from it.
constexpr double kFar = 0.05;
// A plan that does not fit and costs so many times the best one is no start for a search, and one
// that costs so many times what every plan must is good for nothing but to start from.
constexpr double kDear = 1.5;
constexpr Proposer kQuickProposers[] = {
    {"keep_all", 0.1, SIZE_MAX},       {"vdnn", 0.1, SIZE_MAX},
    {"chen_greedy", 0.1, 20'000},      {"chain", 0.1, 20'000},
    {"superneurons", 0.1, 20'000},     {"capuchin", 0.1, 4'000},
    {"lower_sets_approx", 0.1, 4'000}, {"chen_greedy_noap", 0.1, 2'000},
    {"griewank", 0.1, 2'000},          {"last_node", 0.1, 300},
    {"lower_sets", 0.1, 300},
};
constexpr Proposer kSlowProposers[] = {
    {"str", 0.5, 200, 1'500},
    {"checkmate", 0.3, 1'500},
    {"checkmate_lp", 0.2, 100},
    {"str_lp", 0.2, 100},
};
// Asked once more when the search over gaps has found nothing for long and there is time left.
constexpr Proposer kLastProposers[] = {
    {"str", 0.7, 500, 1'500},
    {"checkmate", 0.5, 200, 1'500},
};
// Asked before anything else that takes long, while no plan fits that costs less than kDear times
// what it takes to run every op once: rounding finds some where searches end above the budget, and
// so does moving where recomputing has no room.
constexpr Proposer kRescuers[] = {
    {"checkmate_lp", 0.4, 300},
    {"str", 0.5, 500},
    {"str_lp", 0.4, 300},
    {"checkmate", 0.5, 500},
};
// The same with more ops. The search over gaps makes more of what recomputes than of what moves,
// however dear; so the others are asked only where there is next to nothing to start from.
constexpr Proposer kRescuersOfMany[] = {
    {"checkmate", 0.2, 3'000},
    {"str", 0.6, 1'500},
    {"checkmate", 0.5, 3'000},
};
constexpr std::size_t kMany = 500;
constexpr double kDearest = 2.5;
// Of what is left, how long the search over gaps may find nothing better before these are asked:
// than a plan of theirs, and than one of its own.
constexpr double kPatience = 0.25;
constexpr double kOwnPatience = 0.5;
constexpr double kBoundShare = 0.3;                  // of what the quick ones leave
constexpr double kEveryOrderShare = 0.02;            // of all that there was
constexpr std::size_t kMostOpsInEveryOrder = 3'000;  // beyond these its tables are too large
// Up to this many ops the exact search comes to its end by itself, and may do so where nobody set a
// limit.
constexpr std::size_t kMostExactOps = 20;

// Costs that differ by less are the same up to rounding.
constexpr double kSame = 1e-9;
// A bound that says that there is none.
constexpr double kNoPlan = std::numeric_limits<double>::infinity();

class PlanInOrder {
 public:
  // The bound is about `original`, of which the problem's graph may be a view.
  PlanInOrder(const Problem& problem, const Graph& original, bool unlimited, Effort& effort)
      : problem_(problem),
        original_(original),
        quiet_(problem),
        graph_(*problem.graph),
        unlimited_(unlimited),
        effort_(effort),
        best_(problem),
        least_cost_(least_cost(original)) {
    quiet_.observer = nullptr;
  }

  Result<Proposal> run() {
    if (!problem_.budget) return plan_keep_all(problem_, effort_);
    std::optional<LocalSearch> search;
    if (check_sequences_possible(graph_).ok()) {
      search.emplace(quiet_, effort_);
      search->start_in_blocks();
      take(*search);
      search->start();
      const Plan* start = problem_.start;
      const bool for_this_graph = start && start->fingerprint == graph_.fingerprint();
      if (for_this_graph) search->start_from(*start);
      take(*search);
    }
    ask_all(kQuickProposers, quiet_, search ? &*search : nullptr);
    rescue(search ? &*search : nullptr);
    if (search && !nothing_better()) {
      find_bound(*search);
      if (!fits() || !effort_.exhausted()) go_on(kSlowProposers, 0, *search);
      improve(*search, problem_.options.seed, patience());
      if (!nothing_better() && !effort_.exhausted()) {
        go_on(kLastProposers, 1, *search);
        improve(*search, problem_.options.seed + 1, 1);
      }
    }
    return proposal();
  }

 private:
  void improve(LocalSearch& search, std::uint64_t seed, double patience) {
    const double known = best_.best() ? best_.best()->simulation.cost : kNoPlan;
    search.improve(seed, bound_ * (1 + kSame), {.share = patience, .known = known});
    take(search);
    tell();
  }

  Limits limits_of(const Proposer& proposer) const {
    const bool to_the_end = unlimited_ && graph_.num_ops() <= kMostExactOps;
    if (!to_the_end || std::string_view(proposer.name) != "str") {
      return fraction_of(effort_, proposer.share);
    }
    return {.interrupt = effort_.limits().interrupt, .enough = effort_.limits().enough};
  }

  void ask_all(std::span<const Proposer> proposers, const Problem& problem, LocalSearch* search) {
    for (const Proposer& proposer : proposers) {
      if (!asked_for(proposer)) continue;
      if (nothing_better()) break;
      ask(proposer, problem, search);
    }
  }

  // From where the others have come; with another seed along other ways.
  void go_on(std::span<const Proposer> proposers, std::uint64_t seed, LocalSearch& search) {
    Problem problem = quiet_;
    problem.options.seed += seed;
    Plan known;
    if (best_.best()) {
      known = best_.best()->plan;
      known.fingerprint = graph_.fingerprint();
      problem.start = &known;
    }
    ask_all(proposers, problem, &search);
  }

  void rescue(LocalSearch* search) {
    const bool many = graph_.num_ops() > kMany;
    const auto rescuers = many ? std::span<const Proposer>(kRescuersOfMany) : kRescuers;
    double dear = kDear;
    for (const Proposer& proposer : rescuers) {
      if ((fits() && !dearer_than(dear)) || effort_.exhausted()) break;
      if (graph_.num_ops() <= proposer.most_ops) ask(proposer, quiet_, search);
      if (many) dear = kDearest;
    }
  }

  double patience() const {
    const auto asked = [&](const Proposer& proposer) { return asked_for(proposer); };
    if (std::ranges::none_of(kLastProposers, asked)) return 1;
    return others_know_best() ? kPatience : kOwnPatience;
  }

  // The best plan is one of those who are asked last.
  bool others_know_best() const {
    return best_.best() && std::ranges::any_of(kLastProposers, [&](const Proposer& proposer) {
             return best_.best()->note == proposer.name;
           });
  }

  bool asked_for(const Proposer& proposer) const {
    if (beaten(proposer.name)) return false;
    return graph_.num_ops() <= (far() ? proposer.most_ops_if_far : proposer.most_ops);
  }

  // Its own plan was far from the best that is known now: to ask it again would be in vain.
  bool beaten(const char* proposer) const {
    const auto found = proposed_.find(proposer);
    if (found == proposed_.end() || !fits()) return false;
    return found->second > best_.best()->simulation.cost * (1 + kFar);
  }

  // Whatever fits, such a plan is not what anybody wants.
  bool dearer_than(double times) const {
    return best_.best()->simulation.cost > times * least_cost_;
  }

  bool far() const { return !fits() || best_.best()->simulation.cost > bound_ * (1 + kFar); }

  void find_bound(LocalSearch& search) {
    Effort own(fraction_of(effort_, kBoundShare));
    const CoveringBound bound = covering_bound(original_, problem_.link, *problem_.budget, own,
                                               problem_.host_budget.value_or(kMaxBytes));
    effort_.add(own.work());
    if (std::isfinite(bound.cost)) bound_ = std::max(bound_, bound.cost);
    if (best_.best() && !keeps_order(best_.best()->plan)) every_order_bound(kBoundShare);
    search.start_from_hints(bound.again);
    take(search);
    tell();
  }

  void ask(const Proposer& proposer, const Problem& problem, LocalSearch* search) {
    const Planner* planner = planner_for(problem, proposer.name);
    if (planner == nullptr) return;
    auto outcome = solve(*planner, problem, limits_of(proposer));
    if (!outcome.ok()) return;  // a graph that this one cannot take
    effort_.add(outcome->work);
    // Its bound is for the same plans as ours: any movement, first runs in the order of the graph.
    const bool same_plans = std::string_view(proposer.name) == "str" && &original_ == &graph_;
    if (same_plans) bound_ = std::max(bound_, outcome->lower_bound);
    if (same_plans && outcome->status == PlanStatus::kInfeasible) bound_ = kNoPlan;
    if (!outcome->plan || !allowed(problem_, *outcome->plan)) return;
    const bool within = within_limits(problem_, outcome->simulation);
    proposed_[proposer.name] = within ? outcome->simulation.cost : kNoPlan;
    if (search != nullptr && worth_starting_from(outcome->simulation, within)) {
      search->start_from(*outcome->plan);
    }
    best_.offer({std::move(*outcome->plan), outcome->simulation, std::string(proposer.name)});
  }

  // What does not fit gets dearer when it is made to.
  bool worth_starting_from(const Simulation& simulation, bool within) const {
    return within || !fits() || simulation.cost < kDear * best_.best()->simulation.cost;
  }

  void take(const LocalSearch& search) {
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
    const double bound = in_order ? bound_ : every_order_bound(1);
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

  // Found when the other bound is, or at the end.
  double every_order_bound(double share) {
    if (!every_order_bound_) {
      every_order_bound_ = bound_of_every_order(original_, problem_, share, effort_);
    }
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
  std::map<std::string_view, double> proposed_;  // the last plan's cost of who was asked
  std::optional<double> every_order_bound_;
  double least_cost_;  // of every op once, each in its cheapest way
};

}  // namespace

// Only asked for where the best plan has an order of its own, which the search cannot know: so it
// has a little time even when nothing is left.
double bound_of_every_order(const Graph& graph, const Problem& problem, double share,
                            Effort& effort) {
  if (graph.num_ops() > kMostOpsInEveryOrder) return 0;
  Limits limits = fraction_of(effort, share);
  limits.seconds = std::max(limits.seconds, effort.limits().seconds * kEveryOrderShare);
  const auto work = static_cast<double>(effort.limits().work) * kEveryOrderShare;
  limits.work = std::max(limits.work, static_cast<std::int64_t>(work));
  Effort own(limits);
  const LivenessInEveryOrder live(graph);
  const CoveringBound bound = covering_bound(live, problem.link, *problem.budget, own,
                                             problem.host_budget.value_or(kMaxBytes));
  effort.add(own.work());
  return std::isfinite(bound.cost) ? bound.cost : 0;
}

bool allowed(const Problem& problem, const Plan& plan) {
  if (problem.options.keep_order && !keeps_order(plan)) return false;
  if (problem.options.recompute_gradients) return true;
  const Graph& graph = *problem.graph;
  IdVector<OpId, char> ran(graph.num_ops(), 0);
  return std::ranges::none_of(plan.steps, [&](const Step& step) {
    if (step.kind() != StepKind::kCompute || graph.phase(step.op()) == Phase::kForward) {
      return false;
    }
    return std::exchange(ran[step.op()], 1) != 0;
  });
}

double least_cost(const Graph& graph) {
  double sum = 0;
  for (OpId op : graph.ops()) {
    double least = kNoPlan;
    for (VariantId v : graph.variants(op)) least = std::min(least, graph.cost(v));
    sum += least;
  }
  return sum;
}

Result<Proposal> plan_in_order(const Problem& problem, const Graph& original, bool unlimited,
                               Effort& effort) {
  return PlanInOrder(problem, original, unlimited, effort).run();
}

}  // namespace regen::search
