#include "regen/search/portfolio/second_opinion.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "regen/plan/whereabouts.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/judge.h"
#include "regen/search/portfolio/portfolio.h"
#include "regen/search/portfolio/variant_refinement.h"
#include "regen/search/registry.h"

namespace regen::search {
namespace {

// Beyond these ops the time is better spent by who has it already.
constexpr std::size_t kMostOps = 60;
constexpr double kShare = 0.25;

// Each may take a part of what is left; most end by themselves long before.
struct Opinion {
  const char* planner;
  double share;
};
constexpr Opinion kOpinions[] = {
    {"checkmate_lp", 0.35}, {"str_lp", 0.35}, {"str", 0.5}, {"checkmate", 1}};
// The one that goes other ways with another seed, until it has found nothing so many times.
constexpr Opinion kAgain = {"str", 0.5};
constexpr int kMostInVain = 3;

// Costs that differ by less are the same up to rounding.
constexpr double kSame = 1e-9;

class SecondOpinions {
 public:
  SecondOpinions(const Problem& problem, Effort& effort)
      : problem_(problem), quiet_(problem), effort_(effort), best_(problem) {
    quiet_.observer = nullptr;
  }

  Status add(Plan plan, std::string note) {
    REGEN_ASSIGN(const Simulation simulation,
                 simulate(*problem_.graph, plan, {.link = problem_.link}));
    best_.offer({std::move(plan), simulation, std::move(note)});
    return {};
  }

  Status ask_all(double bound) {
    for (const Opinion& opinion : kOpinions) {
      if (settled(bound)) return {};
      REGEN_TRY(ask(opinion));
    }
    for (int in_vain = 0; in_vain < kMostInVain && !settled(bound);) {
      ++quiet_.options.seed;
      const double before = cost();
      REGEN_TRY(ask(kAgain));
      in_vain = cost() < before * (1 - kSame) ? 0 : in_vain + 1;
    }
    return {};
  }

  const std::optional<Candidate>& best() const { return best_.best(); }
  // Of the best plan; without one that fits it is infinite.
  double cost() const {
    const bool fits = best() && within_limits(problem_, best()->simulation);
    return fits ? best()->simulation.cost : std::numeric_limits<double>::infinity();
  }

 private:
  bool settled(double bound) const { return effort_.exhausted() || cost() <= bound * (1 + kSame); }

  Status ask(const Opinion& opinion) {
    auto outcome = solve(own_planner(opinion.planner), quiet_, fraction_of(effort_, opinion.share));
    if (!outcome.ok()) return {};  // a graph that this one cannot take
    effort_.add(outcome->work);
    if (!outcome->plan || !allowed(problem_, *outcome->plan)) return {};
    REGEN_ASSIGN(Plan plan, with_fastest_variants(*problem_.graph, std::move(*outcome->plan),
                                                  problem_.link, *problem_.budget));
    return add(std::move(plan), opinion.planner);
  }

  const Problem& problem_;
  Problem quiet_;
  Effort& effort_;
  BestCandidate best_;
};

}  // namespace

double share_for_second_opinions(const Graph& graph) {
  return graph.num_ops() <= kMostOps ? kShare : 0;
}

Result<Proposal> with_second_opinions(const Problem& problem, Proposal proposal, Effort& effort) {
  const bool settled =
      proposal.status == PlanStatus::kOptimal || proposal.status == PlanStatus::kInfeasible;
  const Graph& graph = *problem.graph;
  if (settled || !problem.budget || graph.num_ops() > kMostOps) return proposal;
  SecondOpinions others(problem, effort);
  if (proposal.plan) REGEN_TRY(others.add(*proposal.plan, proposal.note));
  const double before = others.cost();
  REGEN_TRY(others.ask_all(std::max(proposal.lower_bound, least_cost(graph))));
  const double cost = others.cost();
  if (!(cost < before * (1 - kSame))) return proposal;
  proposal.plan = others.best()->plan;
  proposal.note = others.best()->note;
  if (!keeps_order(*proposal.plan)) {
    proposal.bound_kind = BoundKind::kEveryPlan;
    proposal.lower_bound = bound_of_every_order(graph, problem, 1, effort);
  }
  const bool proven = cost <= std::max(proposal.lower_bound, least_cost(graph)) * (1 + kSame);
  proposal.status = proven ? PlanStatus::kOptimal : PlanStatus::kFeasible;
  proposal.lower_bound = std::min(proposal.lower_bound, cost);
  return proposal;
}

}  // namespace regen::search
