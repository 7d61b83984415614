// From a set of checkpoints to a plan, under the problem's accounting. Shared by the checkpointing
// heuristics.
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

// In the order in which the problem's accounting visits them.
std::vector<OpId> candidate_checkpoints(const Problem& problem, CandidateSet set);

// The plan that keeps the outputs of `checkpoints` (any order) and recomputes between them.
// The problem's accounting decides what else stays.
Result<Candidate> plan_checkpoints(const Problem& problem, const std::vector<OpId>& checkpoints,
                                   Effort& effort);

// Keeps the best of the candidates that it is offered (comparison.h).
class BestCandidate {
 public:
  explicit BestCandidate(const Problem& problem) : problem_(problem) {}
  // True when it is the best one now.
  bool offer(Candidate candidate);
  const std::optional<Candidate>& best() const { return best_; }
  // The proposal made of the best one; kUnknown with `reason` if none was offered.
  Proposal proposal(std::string reason_if_none) &&;

 private:
  const Problem& problem_;
  Effort clock_;  // for the problem's observer
  std::optional<Candidate> best_;
};

}  // namespace regen::search
