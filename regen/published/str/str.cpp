// `str` as published where the options ask for it: its own linear model, whose stalls cost nothing.
// `str_lp`: the relaxation of search's `str`, rounded.
#include "regen/published/checkmate/stage_matrices.h"
#include "regen/published/options.h"
#include "regen/published/planner_list.h"
#include "regen/published/str/str_published.h"
#include "regen/search/build/accounting.h"
#include "regen/search/build/sequence.h"
#include "regen/search/exact/swap_solver.h"
#include "regen/search/planner_list.h"

namespace regen::published {

Result<search::Proposal> plan_str(const search::Problem& problem, Effort& effort) {
  if (options_of(problem).model == PlanningModel::kLiveness) {
    return search::plan_str(problem, effort);
  }
  REGEN_TRY(search::expect_plain_accounting(problem, "str"));
  REGEN_TRY(search::check_sequences_possible(*problem.graph));
  REGEN_ASSIGN(const StrAnswer answer, solve_published_str(problem, effort));
  // What it decides, as the judge sees it; nothing is proven for our problem.
  search::Proposal proposal{.status = search::PlanStatus::kUnknown,
                            .note = "the published program: "};
  if (!answer.matrices) {
    const bool none = answer.status == search::ModelStatus::kInfeasible;
    proposal.note += none ? "nothing fits" : "nothing found in time";
    return proposal;
  }
  const bool proven = answer.status == search::ModelStatus::kOptimal;
  proposal.note += (proven ? "optimal at " : "best known ") +
                   format_cost(answer.cost, problem.graph->cost_unit()) + ", stalls not counted";
  proposal.status = search::PlanStatus::kFeasible;
  REGEN_ASSIGN(proposal.plan, plan_from_matrices(*problem.graph, *answer.matrices));
  return proposal;
}

Result<search::Proposal> plan_str_lp(const search::Problem& problem, Effort& effort) {
  REGEN_TRY(search::expect_plain_accounting(problem, "str_lp"));
  REGEN_TRY(search::check_sequences_possible(*problem.graph));
  if (!problem.budget) return search::plan_keep_all(problem, effort);
  if (problem.graph->num_ops() > search::kMostSwapOps) {
    return limit_reached("more than " + format_grouped(search::kMostSwapOps) + " ops");
  }
  return search::round_swaps(problem, effort);
}

}  // namespace regen::published
