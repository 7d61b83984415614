// The exact recompute+swap planner, with stalls priced. It is named after STR but uses another
// model (docs/reference/planners.md).
#include "regen/search/build/accounting.h"
#include "regen/search/build/sequence.h"
#include "regen/search/exact/swap_solver.h"
#include "regen/search/planner_list.h"

namespace regen::search {

Result<Proposal> plan_str(const Problem& problem, Effort& effort) {
  REGEN_TRY(expect_plain_accounting(problem, "str"));
  REGEN_TRY(check_sequences_possible(*problem.graph));
  if (!problem.budget) return plan_keep_all(problem, effort);
  if (problem.graph->num_ops() > kMostSwapOps) {
    REGEN_ASSIGN(Proposal proposal, plan_capuchin(problem, effort));
    proposal.note = "more than " + format_grouped(kMostSwapOps) + " ops: only capuchin was asked";
    return proposal;
  }
  return solve_swaps(problem, effort);
}

}  // namespace regen::search
