// From a set of checkpoints to a plan, under the problem's accounting; what the checkpointing
// heuristics share.
#pragma once

#include <optional>
#include <vector>

#include "regen/search/build/accounting.h"

namespace regen::search {

// A plan that was judged.
struct Candidate {
  Plan plan;
  Simulation simulation;
  std::string note;
};

// In the order in which the problem's accounting walks them.
std::vector<OpId> candidate_checkpoints(const Problem& problem, CandidateSet set);

// The plan that keeps the outputs of `checkpoints` (any order) and recomputes between them.
// What stays meanwhile is the problem's accounting's.
Result<Candidate> plan_checkpoints(const Problem& problem, const std::vector<OpId>& checkpoints,
                                   Effort& effort);

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

}  // namespace regen::search
