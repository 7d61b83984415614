// `checkmate` over the schedules that the paper compares with its own: the search of search/exact
// where each op has a stage of its own, the unpartitioned model otherwise.
#include "regen/published/checkmate/unpartitioned_model.h"
#include "regen/published/options.h"
#include "regen/published/planner_list.h"
#include "regen/search/build/sequence.h"
#include "regen/search/judge.h"
#include "regen/search/planner_list.h"

namespace regen::published {

Result<search::Proposal> plan_checkmate(const search::Problem& problem, Effort& effort) {
  if (options_of(problem).schedule == ImposedSchedule::kFrontier) {
    return search::plan_checkmate(problem, effort);
  }
  REGEN_TRY(search::check_sequences_possible(*problem.graph));
  REGEN_ASSIGN(const UnpartitionedAnswer answer, solve_imposed(problem, /*whole=*/true, effort));
  search::Proposal proposal{.status = search::PlanStatus::kUnknown, .lower_bound = answer.bound};
  if (answer.status == search::ModelStatus::kInfeasible) {
    proposal.status = search::PlanStatus::kInfeasible;
  }
  if (answer.sequence.empty()) return proposal;
  const bool proven = answer.status == search::ModelStatus::kOptimal;
  proposal.status = proven ? search::PlanStatus::kOptimal : search::PlanStatus::kFeasible;
  proposal.plan = search::plan_from_sequence(*problem.graph, answer.sequence);
  return proposal;
}

}  // namespace regen::published
