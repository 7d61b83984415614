// The exact recompute+swap planner, with stalls priced, and its relaxation, rounded. It is named
// after STR but uses another model (docs/reference/planners.md).
#include "regen/search/build/accounting.h"
#include "regen/search/build/sequence.h"
#include "regen/search/exact/swap_solver.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

// S is a matrix of ops by values.
constexpr std::size_t kMostOps = 20'000;

Status check_problem(const Problem& problem, std::string_view planner) {
  REGEN_TRY(expect_plain_accounting(problem, planner));
  return check_sequences_possible(*problem.graph);
}

// Its bound is about any movement.
Result<Proposal> about_order(Result<Proposal> proposal) {
  if (proposal.ok()) proposal->bound_kind = BoundKind::kOrder;
  return proposal;
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
  return about_order(SwapSolver(problem, effort).solve());
}

Result<Proposal> plan_str_lp(const Problem& problem, Effort& effort) {
  REGEN_TRY(check_problem(problem, "str_lp"));
  if (!problem.budget) return plan_keep_all(problem, effort);
  if (problem.graph->num_ops() > kMostOps) {
    return limit_reached("more than " + format_grouped(kMostOps) + " ops");
  }
  return about_order(SwapSolver(problem, effort).round());
}

}  // namespace regen::search
