#include "regen/search/judge.h"

#include <algorithm>

#include "regen/graph/cost_range.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/search/comparison.h"

namespace regen::search {
namespace {

// Asks the planner; an error that means "I found nothing" becomes an answer.
Result<Proposal> proposal_of(const Planner& planner, const Problem& problem, Effort& effort) {
  auto proposal = planner.plan(problem, effort);
  if (proposal.ok() || proposal.error().code == ErrorCode::kBadInput) return proposal;
  const bool proven = proposal.error().code == ErrorCode::kInfeasible;
  return Proposal{.status = proven ? PlanStatus::kInfeasible : PlanStatus::kUnknown,
                  .note = proposal.error().message};
}

// Where the host holds nothing, nothing moves: said here once, so that no planner tries in vain and
// every bound counts without movement.
Problem without_useless_link(Problem problem) {
  if (problem.host_budget && *problem.host_budget == 0) problem.link = {};
  return problem;
}

// Times of copies are added up like costs.
Status check_link_range(const Link& link) {
  for (const double rate : {link.to_host, link.to_device, link.both}) {
    if (!(rate > 0)) continue;
    if (rate >= kLeastCost && rate <= kMostCost) continue;
    return bad_input("link of " + format_exact(rate) + " bytes per unit of cost, expected from " +
                     format_exact(kLeastCost) + " to " + format_exact(kMostCost));
  }
  return {};
}

// Which limit the plan breaks, for people.
std::string over_limit_note(const Problem& problem, const Simulation& simulation) {
  if (problem.budget && simulation.peak_bytes > *problem.budget) {
    return "its plan needs " + format_grouped(simulation.peak_bytes) + " bytes, the budget is " +
           format_grouped(*problem.budget);
  }
  if (problem.host_budget && simulation.host_peak_bytes > *problem.host_budget) {
    return "its plan needs " + format_grouped(simulation.host_peak_bytes) +
           " host bytes, the host budget is " + format_grouped(*problem.host_budget);
  }
  return "its plan costs " + format_cost(simulation.cost, problem.graph->cost_unit()) +
         ", the cap is " + format_cost(*problem.cost_cap, problem.graph->cost_unit());
}

}  // namespace

bool within_limits(const Problem& problem, const Simulation& simulation) {
  return (!problem.budget || simulation.peak_bytes <= *problem.budget) &&
         (!problem.host_budget || simulation.host_peak_bytes <= *problem.host_budget) &&
         (!problem.cost_cap || simulation.cost <= *problem.cost_cap);
}

Result<Outcome> solve(const Planner& planner, const Problem& asked, const Limits& limits) {
  const Problem problem = without_useless_link(asked);
  const Graph& graph = *problem.graph;
  REGEN_TRY(check_cost_range(graph));
  REGEN_TRY(check_link_range(problem.link));
  Outcome outcome{.planner = std::string(planner.name), .base_cost = graph.base_cost()};
  outcome.lower_bound = least_cost(graph);
  if (problem.budget && structural_bound(graph).bytes > *problem.budget) {
    outcome.status = PlanStatus::kInfeasible;
    outcome.note = explain_infeasible(graph, *problem.budget).message;
    return outcome;
  }
  Effort effort(limits);
  REGEN_ASSIGN(Proposal proposal, proposal_of(planner, problem, effort));
  outcome.seconds = effort.seconds();
  outcome.work = effort.work();
  if (proposal.lower_bound > outcome.lower_bound) {
    outcome.lower_bound = proposal.lower_bound;
    outcome.bound_kind = proposal.bound_kind;
  }
  // What is infeasible is so for the plans that the planner's bound is about.
  if (proposal.status == PlanStatus::kInfeasible) outcome.bound_kind = proposal.bound_kind;
  outcome.note = std::move(proposal.note);
  outcome.figures = std::move(proposal.figures);
  outcome.status = proposal.status;
  if (!proposal.plan) return outcome;

  proposal.plan->planner = outcome.planner;
  proposal.plan->fingerprint = graph.fingerprint();
  REGEN_ASSIGN(outcome.simulation, simulate(graph, *proposal.plan, {.link = problem.link}));
  REGEN_ASSIGN(const Validation validation, validate(graph, *proposal.plan, {}));
  if (validation.peak_bytes != outcome.simulation.peak_bytes) {
    return bad_input("planner " + outcome.planner +
                     ": simulator and validator disagree on the peak (" +
                     std::to_string(outcome.simulation.peak_bytes) + " and " +
                     std::to_string(validation.peak_bytes) + " bytes); please report this");
  }
  if (!within_limits(problem, outcome.simulation)) {
    outcome.status = PlanStatus::kUnknown;
    const std::string reason = over_limit_note(problem, outcome.simulation);
    outcome.note = outcome.note.empty() ? reason : outcome.note + "; " + reason;
  }
  if (outcome.simulation.cost > 0) {
    outcome.gap = std::max(0.0, 1 - outcome.lower_bound / outcome.simulation.cost);
  }
  outcome.plan = std::move(proposal.plan);
  return outcome;
}

}  // namespace regen::search
