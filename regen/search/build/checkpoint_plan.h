// From a set of checkpoints to a plan, under either accounting; what the checkpointing
// heuristics share.
#pragma once

#include <optional>
#include <vector>

#include "regen/search/planner.h"

namespace regen {

// A plan that was judged.
struct Candidate {
  Plan plan;
  Simulation simulation;
  std::string note;
};

// The forward ops that may become checkpoints: articulation points, or all with an output.
enum class CandidateSet : std::uint8_t { kArticulationPoints, kAll };

// In the order in which the accounting walks them: ascending, or as a CPython set is iterated.
std::vector<OpId> candidate_checkpoints(const Graph& graph, CandidateSet set,
                                        Accounting accounting);

// The plan that keeps the outputs of `checkpoints` (any order) and recomputes between them.
// Checkmate's accounting needs a mirrored graph.
Result<Candidate> plan_checkpoints(const Problem& problem, const std::vector<OpId>& checkpoints,
                                   Effort& effort);

// The number n of forward ops if the graph has Checkmate's shape: n forward ops, one loss, n
// backward ops where op 2n - i is the gradient of op i, each op with one output.
Result<std::size_t> mirrored_forward_ops(const Graph& graph);

// Keeps the better of two: under a budget or a cost cap whatever keeps them, then the cheaper;
// without any limit, and between two that break the limits, the one of less memory.
class BestCandidate {
 public:
  explicit BestCandidate(const Problem& problem) : problem_(problem) {}
  void offer(Candidate candidate);
  const std::optional<Candidate>& best() const { return best_; }
  // The proposal made of the best one; kUnknown with `reason` if none was offered.
  Proposal proposal(std::string reason_if_none) &&;

 private:
  bool better(const Candidate& a, const Candidate& b) const;

  const Problem& problem_;
  Effort clock_;  // for the problem's observer
  std::optional<Candidate> best_;
};

}  // namespace regen
