// Every k-th candidate is a checkpoint, k = sqrt(their number).
#include "regen/published/planner_list.h"
#include "regen/search/heuristics/chen.h"

namespace regen::published {
namespace {

Result<search::Proposal> plan_sqrt(const search::Problem& problem, search::CandidateSet set,
                                   Effort& effort) {
  const auto checkpoints = search::sqrt_checkpoints(problem, set);
  REGEN_ASSIGN(search::Candidate candidate, search::plan_checkpoints(problem, checkpoints, effort));
  return search::Proposal{.plan = std::move(candidate.plan),
                          .note = format_count(checkpoints.size(), "checkpoint")};
}

}  // namespace

Result<search::Proposal> plan_chen_sqrt(const search::Problem& problem, Effort& effort) {
  return plan_sqrt(problem, search::CandidateSet::kArticulationPoints, effort);
}

Result<search::Proposal> plan_chen_sqrt_noap(const search::Problem& problem, Effort& effort) {
  return plan_sqrt(problem, search::CandidateSet::kAll, effort);
}

}  // namespace regen::published
