#include "regen/search/build/checkpoint_plan.h"

#include <algorithm>
#include <utility>

#include "regen/search/comparison.h"

namespace regen::search {
std::vector<OpId> candidate_checkpoints(const Problem& problem, CandidateSet set) {
  std::vector<OpId> found = accounting_of(problem).candidates(*problem.graph, set);
  // A view has nothing to keep.
  std::erase_if(found, [&](OpId op) { return problem.graph->outputs(op).empty(); });
  return found;
}

Result<Candidate> plan_checkpoints(const Problem& problem, const std::vector<OpId>& checkpoints,
                                   Effort& effort) {
  const Graph& graph = *problem.graph;
  Candidate candidate;
  REGEN_ASSIGN(candidate.plan, accounting_of(problem).plan(graph, checkpoints, effort));
  REGEN_ASSIGN(candidate.simulation, simulate(graph, candidate.plan, {.link = problem.link}));
  return candidate;
}

bool BestCandidate::offer(Candidate candidate) {
  if (best_ && !better(problem_, candidate.simulation, best_->simulation)) return false;
  best_ = std::move(candidate);
  // Heuristics prove nothing: the bound that they report is 0.
  if (problem_.observer && within_limits(problem_, best_->simulation)) {
    problem_.observer(clock_.seconds(), best_->simulation.cost, 0);
  }
  return true;
}

Proposal BestCandidate::proposal(std::string reason_if_none) && {
  if (!best_) return {.status = PlanStatus::kUnknown, .note = std::move(reason_if_none)};
  return {.status = PlanStatus::kFeasible,
          .plan = std::move(best_->plan),
          .note = std::move(best_->note)};
}

}  // namespace regen::search
