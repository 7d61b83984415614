#include "regen/search/heuristics/chen.h"

#include <cmath>
#include <set>

#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

// A range of segment sizes is tried, from none to three times the memory of the square-root rule;
// the judge says which of the resulting plans is best.
Result<Proposal> plan_greedy(const Problem& problem, CandidateSet set, Effort& effort) {
  const Graph& graph = *problem.graph;
  const int points = problem.options.greedy_points;
  if (points < 1 || points > 100'000) {
    return bad_input("greedy points: " + std::to_string(points) +
                     " is out of range, expected 1 to 100000");
  }
  REGEN_ASSIGN(const Candidate scale,
               plan_checkpoints(problem, sqrt_checkpoints(problem, CandidateSet::kAll), effort));
  const auto unit = static_cast<double>(scale.simulation.activation_peak_bytes);
  const std::vector<OpId> candidates = candidate_checkpoints(problem, set);
  const std::vector<OpId> walk = accounting_of(problem).walk(graph);

  BestCandidate best(problem);
  std::set<std::vector<OpId>> tried;
  for (int i = 0; i < points && (i == 0 || !effort.exhausted()); ++i) {
    const double segment_bytes = unit * 3.0 * i / points;
    auto checkpoints = greedy_checkpoints(graph, candidates, walk, segment_bytes);
    const std::size_t count = checkpoints.size();
    const auto [chosen, is_new] = tried.insert(std::move(checkpoints));
    if (!is_new) continue;
    REGEN_ASSIGN(Candidate candidate, plan_checkpoints(problem, *chosen, effort));
    candidate.note = format_count(count, "checkpoint") + ", segments of " +
                     format_bytes(static_cast<Bytes>(segment_bytes));
    best.offer(std::move(candidate));
  }
  return std::move(best).proposal("no candidate was tried");
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

std::vector<OpId> greedy_checkpoints(const Graph& graph, const std::vector<OpId>& candidates,
                                     const std::vector<OpId>& walk, double segment_bytes) {
  IdVector<OpId, char> is_candidate(graph.num_ops(), 0);
  for (OpId op : candidates) is_candidate[op] = 1;
  std::vector<OpId> chosen;
  double sum = 0;
  for (OpId op : walk) {
    for (TensorId t : graph.outputs(op)) sum += static_cast<double>(graph.bytes(t));
    if (is_candidate[op] && sum > segment_bytes) {
      chosen.push_back(op);
      sum = 0;
    }
  }
  return chosen;
}

Result<Proposal> plan_chen_greedy(const Problem& problem, Effort& effort) {
  return plan_greedy(problem, CandidateSet::kArticulationPoints, effort);
}

Result<Proposal> plan_chen_greedy_noap(const Problem& problem, Effort& effort) {
  return plan_greedy(problem, CandidateSet::kAll, effort);
}

}  // namespace regen::search
