#include "regen/search/build/checkpoint_plan.h"

#include <algorithm>
#include <utility>

#include "regen/search/judge.h"

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

bool BestCandidate::better(const Candidate& a, const Candidate& b) const {
  const bool a_fits = within_limits(problem_, a.simulation);
  if (a_fits != within_limits(problem_, b.simulation)) return a_fits;
  const double a_peak = static_cast<double>(a.simulation.peak_bytes);
  const double b_peak = static_cast<double>(b.simulation.peak_bytes);
  if (a_fits && problem_.budget) {
    return std::pair(a.simulation.cost, a_peak) < std::pair(b.simulation.cost, b_peak);
  }
  return std::pair(a_peak, a.simulation.cost) < std::pair(b_peak, b.simulation.cost);
}

void BestCandidate::offer(Candidate candidate) {
  if (best_ && !better(candidate, *best_)) return;
  best_ = std::move(candidate);
  // Heuristics prove nothing, so the bound they tell is that no cost is negative.
  if (problem_.observer && within_limits(problem_, best_->simulation)) {
    problem_.observer(clock_.seconds(), best_->simulation.cost, 0);
  }
}

Proposal BestCandidate::proposal(std::string reason_if_none) && {
  if (!best_) return {.status = PlanStatus::kUnknown, .note = std::move(reason_if_none)};
  return {.status = PlanStatus::kFeasible,
          .plan = std::move(best_->plan),
          .note = std::move(best_->note)};
}

}  // namespace regen::search
