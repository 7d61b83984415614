// The exact optimum of Checkmate's problem: each op runs for the first time in a stage of its own,
// in the order of the graph, and may run again in later stages.
#include <algorithm>

#include "regen/planners/checkpoint_plan.h"
#include "regen/planners/frontier_solver.h"
#include "regen/planners/planner_list.h"
#include "regen/planners/recompute.h"
#include "regen/planners/registry.h"

namespace regen {
namespace {

std::vector<OpId> sequence_of(const Plan& plan) {
  std::vector<OpId> sequence;
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kCompute) sequence.push_back(step.op());
  }
  return sequence;
}

// What the quick heuristics propose; they ask for no time worth counting.
struct Starts {
  std::vector<std::vector<OpId>> sequences;
  BestCandidate best;

  explicit Starts(const Problem& problem) : best(problem) {
    Problem plain = problem;
    plain.options.accounting = Accounting::kPlain;
    Effort quick({.interrupt = nullptr});
    for (const auto planner : {plan_keep_all, plan_chen_greedy, plan_griewank}) {
      auto proposal = planner(plain, quick);
      if (!proposal.ok() || !proposal->plan) continue;
      auto simulation = simulate(*problem.graph, *proposal->plan, {.link = problem.link});
      if (!simulation.ok()) continue;
      sequences.push_back(sequence_of(*proposal->plan));
      best.offer({std::move(*proposal->plan), *std::move(simulation), std::move(proposal->note)});
    }
  }
};

}  // namespace

Result<Proposal> plan_checkmate(const Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  REGEN_TRY(check_sequences_possible(graph));
  Starts starts(problem);
  Problem bounded = problem;
  if (!bounded.budget) bounded.budget = std::numeric_limits<Bytes>::max() / 4;
  FrontierSolver solver(bounded, effort);
  FrontierAnswer answer = solver.solve(starts.sequences);
  const bool exact = make_frontier(graph, true).exact;

  Proposal proposal{.status = answer.status, .note = answer.note};
  if (exact) proposal.lower_bound = answer.bound;
  if (!exact && proposal.status == PlanStatus::kOptimal) proposal.status = PlanStatus::kFeasible;
  if (!exact && proposal.status == PlanStatus::kInfeasible) proposal.status = PlanStatus::kUnknown;
  if (!answer.sequence.empty()) {
    Plan plan = plan_from_sequence(graph, answer.sequence);
    REGEN_ASSIGN(Simulation simulation, simulate(graph, plan, {.link = problem.link}));
    starts.best.offer({std::move(plan), std::move(simulation), ""});
  }
  if (proposal.status == PlanStatus::kInfeasible || !starts.best.best()) return proposal;
  const Candidate& best = *starts.best.best();
  // A heuristic may have a plan where the solver had no time to find one.
  if (within_limits(problem, best.simulation) && proposal.status == PlanStatus::kUnknown) {
    proposal.status = PlanStatus::kFeasible;
  }
  proposal.plan = best.plan;
  return proposal;
}

}  // namespace regen
