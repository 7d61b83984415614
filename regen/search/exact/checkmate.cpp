// The exact optimum of Checkmate's problem: each op runs for the first time in a stage of its own,
// in the order of the graph, and may run again in later stages.
#include <limits>

#include "regen/plan/whereabouts.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"
#include "regen/search/exact/stage_problem.h"
#include "regen/search/exact/stage_solver.h"
#include "regen/search/judge.h"
#include "regen/search/local/local_search.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

// S is a matrix of ops by values; for larger graphs it does not fit in memory.
constexpr std::size_t kMostOps = 20'000;
// Counted work of the quick heuristics together.
constexpr std::int64_t kQuickWork = 1'000'000;

// The plan that is given or, without one, plans of heuristics. The quick ones take no time worth
// counting, so that there is a plan even without effort; a slower one runs where they fail.
struct Starts {
  std::vector<std::vector<OpId>> sequences;
  BestCandidate best;

  Starts(const Problem& problem, Effort& effort) : best(problem) {
    if (starts_from_plan(problem)) {
      // This planner does not move: only the sequence of ops is used.
      add(problem,
          Proposal{.plan = plan_from_sequence(*problem.graph, sequence_of(*problem.start))});
      return;
    }
    Problem plain = problem;
    plain.options.accounting = nullptr;
    Effort quick({.work = kQuickWork});
    for (const auto planner : {plan_keep_all, plan_chen_greedy}) {
      add(problem, planner(plain, quick));
    }
    const bool fits = best.best() && within_limits(problem, best.best()->simulation);
    if (!fits && !effort.exhausted()) add(problem, plan_chain(plain, effort));
  }

  void add(const Problem& problem, Result<Proposal> proposal) {
    if (!proposal.ok() || !proposal->plan) return;
    auto simulation = simulate(*problem.graph, *proposal->plan, {.link = problem.link});
    if (!simulation.ok()) return;
    sequences.push_back(sequence_of(*proposal->plan));
    best.offer({std::move(*proposal->plan), *std::move(simulation), std::move(proposal->note)});
  }
};

}  // namespace

Result<Proposal> plan_checkmate(const Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  REGEN_TRY(check_sequences_possible(graph));
  Starts starts(problem, effort);
  if (graph.num_ops() > kMostOps) {
    Proposal proposal = std::move(starts.best).proposal("");
    proposal.note = "more than " + format_grouped(kMostOps) + " ops: only heuristics were asked";
    return proposal;
  }
  Problem bounded = problem;
  if (!starts_from_plan(problem)) bounded.start = nullptr;
  if (!bounded.budget) bounded.budget = std::numeric_limits<Bytes>::max() / 4;
  const StageAnswer answer = solve_stages(bounded, starts.sequences, effort);
  const bool exact = make_stage_problem(graph, true).exact;

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
  // A heuristic may have a plan where the solver did not find one in time.
  if (within_limits(problem, best.simulation) && proposal.status == PlanStatus::kUnknown) {
    proposal.status = PlanStatus::kFeasible;
  }
  proposal.plan = best.plan;
  return proposal;
}

}  // namespace regen::search
