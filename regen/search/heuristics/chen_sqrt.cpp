#include <cmath>

#include "regen/search/heuristics/chen.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

Result<Proposal> plan_sqrt(const Problem& problem, CandidateSet set, Effort& effort) {
  const auto checkpoints = sqrt_checkpoints(problem, set);
  REGEN_ASSIGN(Candidate candidate, plan_checkpoints(problem, checkpoints, effort));
  return Proposal{.plan = std::move(candidate.plan),
                  .note = format_count(checkpoints.size(), "checkpoint")};
}

}  // namespace

std::vector<OpId> sqrt_checkpoints(const Problem& problem, CandidateSet set) {
  const std::vector<OpId> candidates = candidate_checkpoints(problem, set);
  const auto stride = static_cast<std::size_t>(std::sqrt(static_cast<double>(candidates.size())));
  std::vector<OpId> chosen;
  for (std::size_t i = stride; stride > 0 && i <= candidates.size(); i += stride) {
    chosen.push_back(candidates[i - 1]);
  }
  return chosen;
}

Result<Proposal> plan_chen_sqrt(const Problem& problem, Effort& effort) {
  return plan_sqrt(problem, CandidateSet::kArticulationPoints, effort);
}

Result<Proposal> plan_chen_sqrt_noap(const Problem& problem, Effort& effort) {
  return plan_sqrt(problem, CandidateSet::kAll, effort);
}

}  // namespace regen::search
