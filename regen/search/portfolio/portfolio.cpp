#include "regen/search/portfolio/portfolio.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "regen/base/tolerance.h"
#include "regen/plan/explain.h"
#include "regen/plan/whereabouts.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"
#include "regen/search/comparison.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/local/local_search.h"
#include "regen/search/planner_list.h"
#include "regen/search/registry.h"
#include "regen/search/search_trace.h"

namespace regen::search {
namespace {

// A cost above the bound by more than this fraction is far from it; a planner whose own plan is so
// far from the best is not asked again.
constexpr double kFarFromBound = 0.05;
// A plan that does not fit and costs so many times the best one is no start for local search:
// repairs only add cost.
constexpr double kTooExpensiveToRepair = 1.5;
// Of the effort that is left, how long local search may find nothing better before the exact
// methods resume: than a plan of theirs, and than one of its own.
constexpr double kPatienceWithTheirs = 0.25;
constexpr double kPatienceWithOwn = 0.5;
// Before the exact methods: at most this fraction of the effort, and this one without success.
constexpr double kSearchBeforeExact = 0.4;
constexpr double kPatienceBeforeExact = 0.1;
constexpr double kBoundFraction = 0.3;  // of what the quick round leaves
// Up to this many ops the exact search ends by itself, and may do so where the caller set no limit.
constexpr std::size_t kMostExactOps = 20;

// A bound that says that there is no plan.
constexpr double kNoPlan = std::numeric_limits<double>::infinity();

class Portfolio {
 public:
  Portfolio(const Problem& problem, const Graph& original, bool unlimited, Effort& effort)
      : problem_(problem),
        original_(original),
        quiet_(quiet(problem)),
        graph_(*problem.graph),
        unlimited_(unlimited),
        effort_(effort),
        best_(problem),
        least_cost_(least_cost(original)) {}

  Result<Proposal> run() {
    if (!problem_.budget) return plan_keep_all(problem_, effort_);
    std::optional<LocalSearch> search;
    if (check_sequences_possible(graph_).ok()) {
      search.emplace(quiet_, effort_);
      start(*search);
    }
    ask_round(Round::kQuick, quiet_, search ? &*search : nullptr);
    if (search && !nothing_better()) start_exactly(*search);
    rescue(search ? &*search : nullptr);
    if (search && !nothing_better()) {
      find_bound(*search);
      improve(*search, problem_.options.seed, kPatienceBeforeExact,
              fraction_of(effort_, kSearchBeforeExact));
      if (!fits() || !effort_.exhausted()) go_on(Round::kExact, 0, *search);
      improve(*search, problem_.options.seed, patience());
      if (!nothing_better() && !effort_.exhausted()) {
        go_on(Round::kResume, 1, *search);
        improve(*search, problem_.options.seed + 1, 1);
      }
    }
    return proposal();
  }

 private:
  void start(LocalSearch& search) {
    if (!is_ablated(problem_, Part::kBlocks)) {
      search.start_in_blocks();
      take(search, Part::kBlocks);
    }
    if (!is_ablated(problem_, Part::kStart)) {
      search.start();
      if (!search.best()) search.start_moving(search.model().keep_everything());
    }
    if (starts_from_plan(quiet_)) search.start_from(*problem_.start);
    take(search, Part::kStart);
  }

  void start_exactly(LocalSearch& search) {
    if (!is_ablated(problem_, Part::kExactStart)) search.start_exactly(problem_.options.seed);
    take(search, Part::kExactStart);
  }

  void improve(LocalSearch& search, std::uint64_t seed, double patience, const Limits& most = {}) {
    if (is_ablated(problem_, Part::kLocalSearch)) return;
    const double known = best_.best() ? best_.best()->simulation.cost : kNoPlan;
    search.improve(seed, bound_ * (1 + kSameCost),
                   {.fraction = patience, .known = known, .most = most});
    take(search, Part::kLocalSearch);
    report();
  }

  Limits limits_of(const Row& row) const {
    const bool to_the_end = unlimited_ && graph_.num_ops() <= kMostExactOps;
    if (!to_the_end || std::string_view(row.planner) != "str") {
      return fraction_of(effort_, row.fraction);
    }
    return {.interrupt = effort_.limits().interrupt, .enough = effort_.limits().enough};
  }

  void ask_round(Round round, const Problem& problem, LocalSearch* search) {
    for (const Row& row : portfolio_table()) {
      if (row.round != round || !is_worth_asking(row)) continue;
      if (nothing_better()) break;
      ask(row, problem, search);
    }
  }

  // From the best plan so far; another seed leads along other ways.
  void go_on(Round round, std::uint64_t seed, LocalSearch& search) {
    Problem problem = quiet_;
    problem.options.seed += seed;
    Plan known;
    if (best_.best()) {
      known = best_.best()->plan;
      known.fingerprint = graph_.fingerprint();
      problem.start = &known;
    }
    ask_round(round, problem, &search);
  }

  void rescue(LocalSearch* search) {
    for (const Row& row : portfolio_table()) {
      if (row.round != Round::kRescue || !is_in_range(row)) continue;
      if ((fits() && !costs_more_than(row.above)) || effort_.exhausted()) break;
      ask(row, quiet_, search);
    }
  }

  double patience() const {
    const auto asked = [&](const Row& row) {
      return row.round == Round::kResume && is_worth_asking(row);
    };
    if (std::ranges::none_of(portfolio_table(), asked)) return 1;
    return best_is_of_resumed() ? kPatienceWithTheirs : kPatienceWithOwn;
  }

  // The best plan is one of a planner that will be resumed.
  bool best_is_of_resumed() const {
    return best_row_ != nullptr && std::ranges::any_of(portfolio_table(), [&](const Row& row) {
             return row.round == Round::kResume &&
                    std::string_view(row.planner) == best_row_->planner;
           });
  }

  bool is_in_range(const Row& row) const {
    const std::size_t ops = graph_.num_ops();
    const bool wider = row.most_ops_if_far > 0 && is_far();
    return ops >= row.fewest_ops && ops <= (wider ? row.most_ops_if_far : row.most_ops);
  }

  bool is_worth_asking(const Row& row) const { return !is_beaten(row.planner) && is_in_range(row); }

  // Its own plan was far from the best that is known now.
  bool is_beaten(std::string_view planner) const {
    const auto found = proposed_.find(planner);
    if (found == proposed_.end() || !fits()) return false;
    return found->second > best_.best()->simulation.cost * (1 + kFarFromBound);
  }

  bool costs_more_than(double least_costs) const {
    return best_.best()->simulation.cost > least_costs * least_cost_;
  }

  bool is_far() const {
    return !fits() || best_.best()->simulation.cost > bound_ * (1 + kFarFromBound);
  }

  void find_bound(LocalSearch& search) {
    if (is_ablated(problem_, Part::kCoveringBound)) return;
    Effort own(fraction_of(effort_, kBoundFraction));
    const CoveringBound bound = covering_bound(original_, problem_.link, *problem_.budget, own,
                                               problem_.host_budget.value_or(kMaxBytes));
    effort_.add(own.work());
    if (std::isfinite(bound.cost)) bound_ = std::max(bound_, bound.cost);
    note({.source = std::string(to_string(Part::kCoveringBound)), .bound = bound_});
    if (!is_ablated(problem_, Part::kHints)) search.start_from_hints(bound.again);
    take(search, Part::kHints);
    report();
  }

  void ask(const Row& row, const Problem& problem, LocalSearch* search) {
    const Planner* planner = planner_for(problem, row.planner);
    if (planner == nullptr || is_ablated(problem_, row)) return;
    auto outcome = solve(*planner, problem, limits_of(row));
    if (!outcome.ok()) return;  // a graph that this planner cannot take
    effort_.add(outcome->work);
    note_event(problem_, effort_, name_of(row), *outcome);
    noted_work_ = effort_.work();
    // Its bound is about the same plans as ours: any movement, first runs in the graph's order.
    const bool same_plans = outcome->bound_kind == BoundKind::kOrder && &original_ == &graph_;
    if (same_plans) bound_ = std::max(bound_, outcome->lower_bound);
    if (same_plans && outcome->status == PlanStatus::kInfeasible) bound_ = kNoPlan;
    if (!outcome->plan || !allowed(problem_, *outcome->plan)) return;
    const bool within = within_limits(problem_, outcome->simulation);
    proposed_[row.planner] = within ? outcome->simulation.cost : kNoPlan;
    if (search != nullptr && is_worth_starting_from(outcome->simulation, within)) {
      search->start_from(*outcome->plan);
    }
    offer({std::move(*outcome->plan), outcome->simulation, row.planner}, &row);
  }

  void offer(Candidate candidate, const Row* row) {
    if (best_.offer(std::move(candidate))) best_row_ = row;
  }

  bool is_worth_starting_from(const Simulation& simulation, bool within) const {
    return within || !fits() ||
           simulation.cost < kTooExpensiveToRepair * best_.best()->simulation.cost;
  }

  void take(const LocalSearch& search, Part part) {
    if (!search.best()) return;
    Candidate candidate{.plan = search.best_plan(), .note = "local search"};
    auto simulation = simulate(graph_, candidate.plan, {.link = problem_.link});
    if (!simulation.ok()) return;
    candidate.simulation = *simulation;
    const bool fits = within_limits(problem_, *simulation);
    note({.source = std::string(to_string(part)),
          .cost = fits ? std::optional(simulation->cost) : std::nullopt});
    offer(std::move(candidate), nullptr);
  }

  void note(SearchEvent event) {
    if (problem_.trace == nullptr) return;
    event.seconds = effort_.seconds();
    event.work = effort_.work() - noted_work_;
    noted_work_ = effort_.work();
    problem_.trace->events.push_back(std::move(event));
  }

  void report() const {
    if (!problem_.observer || !fits() || !keeps_order(best_.best()->plan)) return;
    const double cost = best_.best()->simulation.cost;
    problem_.observer(effort_.seconds(), cost, std::min(bound_, cost));
  }

  bool fits() const { return best_.best() && within_limits(problem_, best_.best()->simulation); }

  bool nothing_better() const {
    return fits() && at_most(best_.best()->simulation.cost, std::max(bound_, least_cost_));
  }

  Result<Proposal> proposal() {
    const Simulation simulation = best_.best() ? best_.best()->simulation : Simulation{};
    const double cost = simulation.cost;
    Proposal proposal = std::move(best_).proposal("no planner found anything");
    if (!proposal.plan) return proposal;
    const bool in_order = keeps_order(*proposal.plan);
    // Of a plan with an order of its own no more is known than what every op costs once.
    const double bound = in_order ? bound_ : least_cost_;
    const bool fits = within_limits(problem_, simulation);
    if (!fits && bound_ == kNoPlan) {
      return Proposal{.status = PlanStatus::kInfeasible,
                      .bound_kind = BoundKind::kOrder,
                      .note = "no plan in the order of the graph fits"};
    }
    proposal.lower_bound = fits ? std::min(bound, cost) : bound;
    proposal.bound_kind = in_order ? BoundKind::kOrder : BoundKind::kEveryPlan;
    if (fits && at_most(cost, std::max(bound, least_cost_))) {
      proposal.status = PlanStatus::kOptimal;
    }
    return proposal;
  }

  const Problem& problem_;
  const Graph& original_;
  const Problem quiet_;
  const Graph& graph_;
  bool unlimited_;  // the effort's limits are our own, not the caller's
  Effort& effort_;
  BestCandidate best_;
  double bound_ = 0;
  std::map<std::string_view, double> proposed_;  // by planner: the cost of its last plan
  const Row* best_row_ = nullptr;                // of the best plan; null: local search
  std::int64_t noted_work_ = 0;                  // of the effort, at the last event of the trace
  double least_cost_;                            // of every op once, each in its cheapest way
};

}  // namespace

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

Problem quiet(const Problem& problem) {
  Problem quiet = problem;
  quiet.observer = nullptr;
  quiet.trace = nullptr;
  return quiet;
}

bool is_ablated(const Problem& problem, const Row& row) {
  return problem.ablation != nullptr && problem.ablation->without(row);
}

bool is_ablated(const Problem& problem, Part part) {
  return problem.ablation != nullptr && problem.ablation->without(part);
}

void note_event(const Problem& problem, const Effort& effort, std::string source,
                const Outcome& outcome) {
  if (problem.trace == nullptr) return;
  SearchEvent event{.source = std::move(source), .seconds = effort.seconds(), .work = outcome.work};
  const bool fits =
      outcome.plan && allowed(problem, *outcome.plan) && within_limits(problem, outcome.simulation);
  if (fits) event.cost = outcome.simulation.cost;
  if (outcome.bound_kind == BoundKind::kOrder) event.bound = outcome.lower_bound;
  problem.trace->events.push_back(std::move(event));
}

Result<Proposal> run_portfolio(const Problem& problem, const Graph& original, bool unlimited,
                               Effort& effort) {
  return Portfolio(problem, original, unlimited, effort).run();
}

}  // namespace regen::search
