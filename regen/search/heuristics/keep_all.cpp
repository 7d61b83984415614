// Every forward value (or that of every articulation point) is a checkpoint.
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

Result<Proposal> keep(const Problem& problem, const std::vector<OpId>& checkpoints,
                      Effort& effort) {
  REGEN_ASSIGN(Candidate candidate, plan_checkpoints(problem, checkpoints, effort));
  return Proposal{.plan = std::move(candidate.plan)};
}

}  // namespace

Result<Proposal> plan_keep_all(const Problem& problem, Effort& effort) {
  std::vector<OpId> all;
  for (OpId op : problem.graph->ops()) {
    if (problem.graph->phase(op) == Phase::kForward) all.push_back(op);
  }
  return keep(problem, all, effort);
}

Result<Proposal> plan_keep_all_ap(const Problem& problem, Effort& effort) {
  return keep(problem, candidate_checkpoints(problem, CandidateSet::kArticulationPoints), effort);
}

}  // namespace regen::search
