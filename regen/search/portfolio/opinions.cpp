#include "regen/search/portfolio/opinions.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regen/base/tolerance.h"
#include "regen/plan/whereabouts.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/comparison.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/portfolio/portfolio.h"
#include "regen/search/portfolio/table.h"
#include "regen/search/portfolio/variant_refinement.h"
#include "regen/search/registry.h"
#include "regen/search/search_trace.h"

namespace regen::search {
namespace {

constexpr double kFraction = 0.25;
// Seeds in a row that find nothing better end the repetition.
constexpr int kMostFruitless = 3;

class Opinions {
 public:
  Opinions(const Problem& problem, Effort& effort)
      : problem_(problem), quiet_(quiet(problem)), effort_(effort), best_(problem) {}

  // Of each planner instead of the fraction in its row.
  void set_work(std::int64_t work) { work_ = work; }

  Status add(Plan plan, std::string note) {
    REGEN_ASSIGN(const Simulation simulation,
                 simulate(*problem_.graph, plan, {.link = problem_.link}));
    best_.offer({std::move(plan), simulation, std::move(note)});
    return {};
  }

  Status ask_all(double bound) {
    for (const Row& row : portfolio_table()) {
      if (row.round == Round::kOpinion && !settled(bound)) REGEN_TRY(ask_once(row));
      if (row.round == Round::kRepeat && !work_) REGEN_TRY(repeat(row, bound));
    }
    return {};
  }

  const std::optional<Candidate>& best() const { return best_.best(); }
  // Of the best plan; infinite without one that fits.
  double cost() const {
    const bool fits = best() && within_limits(problem_, best()->simulation);
    return fits ? best()->simulation.cost : std::numeric_limits<double>::infinity();
  }

 private:
  bool settled(double bound) const { return effort_.exhausted() || at_most(cost(), bound); }

  Status ask_once(const Row& row) {
    const std::string_view planner = row.planner;
    const bool cheap = row.above > 0 && cost() <= row.above * least_cost(*problem_.graph);
    if (cheap || std::ranges::find(asked_, planner) != asked_.end()) return {};
    asked_.push_back(planner);
    return ask(row);
  }

  Status repeat(const Row& row, double bound) {
    if (is_ablated(problem_, row)) return {};
    for (int fruitless = 0; fruitless < kMostFruitless && !settled(bound);) {
      ++quiet_.options.seed;
      const double before = cost();
      REGEN_TRY(ask(row));
      fruitless = clearly_below(cost(), before) ? 0 : fruitless + 1;
    }
    return {};
  }

  Status ask(const Row& row) {
    if (problem_.graph->num_ops() > row.most_ops || is_ablated(problem_, row)) return {};
    const Planner* planner = planner_for(problem_, row.planner);
    if (planner == nullptr) return {};  // a program that was built without it
    auto outcome = solve(*planner, quiet_, limits_of(row));
    if (!outcome.ok()) return {};  // a graph that this planner cannot take
    effort_.add(outcome->work);
    if (!outcome->plan || !allowed(problem_, *outcome->plan)) return {};
    REGEN_ASSIGN(Plan plan, with_fastest_variants(*problem_.graph, std::move(*outcome->plan),
                                                  problem_.link, *problem_.budget));
    REGEN_TRY(add(std::move(plan), row.planner));
    note_event(problem_, effort_, name_of(row), *outcome);
    return {};
  }

  Limits limits_of(const Row& row) const {
    if (!work_) return fraction_of(effort_, row.fraction);
    Limits limits = fraction_of(effort_, 1);
    limits.work = std::min(limits.work, *work_);
    return limits;
  }

  const Problem& problem_;
  Problem quiet_;
  Effort& effort_;
  BestCandidate best_;
  std::optional<std::int64_t> work_;
  std::vector<std::string_view> asked_;
};

bool is_asked(const Row& row, const Graph& graph) {
  return row.round == Round::kOpinion && graph.num_ops() <= row.most_ops;
}

Result<Proposal> better_of(const Problem& problem, Proposal proposal, Opinions& others) {
  const Graph& graph = *problem.graph;
  if (proposal.plan) REGEN_TRY(others.add(*proposal.plan, proposal.note));
  const double before = others.cost();
  REGEN_TRY(others.ask_all(std::max(proposal.lower_bound, least_cost(graph))));
  const double cost = others.cost();
  if (!clearly_below(cost, before)) return proposal;
  proposal.plan = others.best()->plan;
  proposal.note = others.best()->note;
  if (!keeps_order(*proposal.plan)) {
    proposal.bound_kind = BoundKind::kEveryPlan;
    proposal.lower_bound = least_cost(graph);
  }
  const bool proven = at_most(cost, std::max(proposal.lower_bound, least_cost(graph)));
  proposal.status = proven ? PlanStatus::kOptimal : PlanStatus::kFeasible;
  proposal.lower_bound = std::min(proposal.lower_bound, cost);
  return proposal;
}

// Whether others could say anything: the proposal is not proven, and they take such graphs.
bool are_worth_asking(const Problem& problem, const Proposal& proposal) {
  const bool settled =
      proposal.status == PlanStatus::kOptimal || proposal.status == PlanStatus::kInfeasible;
  return !settled && problem.budget && number_of_opinions(*problem.graph) > 0;
}

}  // namespace

double fraction_for_opinions(const Graph& graph) {
  return number_of_opinions(graph) > 0 ? kFraction : 0;
}

std::size_t number_of_opinions(const Graph& graph) {
  std::set<std::string_view> planners;
  for (const Row& row : portfolio_table()) {
    if (is_asked(row, graph)) planners.insert(row.planner);
  }
  return planners.size();
}

Result<Proposal> with_opinions(const Problem& problem, Proposal proposal, Effort& effort) {
  if (!are_worth_asking(problem, proposal)) return proposal;
  Opinions others(problem, effort);
  return better_of(problem, std::move(proposal), others);
}

Result<Proposal> with_opinions_of(std::int64_t work, const Problem& problem, Proposal proposal,
                                  Effort& effort) {
  if (!are_worth_asking(problem, proposal)) return proposal;
  Opinions others(problem, effort);
  others.set_work(work);
  return better_of(problem, std::move(proposal), others);
}

}  // namespace regen::search
