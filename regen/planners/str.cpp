// The exact hybrid of recomputation and swapping, with stalls priced (after STR, but not its
// program: docs/planners.md says how they differ), and its relaxation, rounded.
#include "regen/planners/hybrid_solver.h"
#include "regen/planners/planner_list.h"
#include "regen/planners/recompute.h"

namespace regen {
namespace {

// What is carried from stage to stage is a matrix of ops by values.
constexpr std::size_t kMostOps = 20'000;

Status check_problem(const Problem& problem, const char* planner) {
  if (problem.options.accounting != Accounting::kPlain) {
    return bad_input(std::string("planner ") + planner +
                     " counts memory in one way only, expected accounting plain");
  }
  return check_sequences_possible(*problem.graph);
}

}  // namespace

Result<Proposal> plan_str(const Problem& problem, Effort& effort) {
  REGEN_TRY(check_problem(problem, "str"));
  if (!problem.budget) return plan_keep_all(problem, effort);
  if (problem.graph->num_ops() > kMostOps) {
    REGEN_ASSIGN(Proposal proposal, plan_capuchin(problem, effort));
    proposal.note = "more than " + format_grouped(kMostOps) + " ops: only capuchin was asked";
    return proposal;
  }
  return HybridSolver(problem, effort).solve();
}

Result<Proposal> plan_str_lp(const Problem& problem, Effort& effort) {
  REGEN_TRY(check_problem(problem, "str_lp"));
  if (!problem.budget) return plan_keep_all(problem, effort);
  if (problem.graph->num_ops() > kMostOps) {
    return limit_reached("more than " + format_grouped(kMostOps) + " ops");
  }
  return HybridSolver(problem, effort).round();
}

}  // namespace regen
