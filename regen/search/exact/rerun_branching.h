// Cutting a stages program in two by how OFTEN ops run again.
//
// Branching on single columns decides in which stage an op runs again, and a relaxation evades that
// by moving to the next stage. The sum over the stages it cannot evade. Where the best schedule
// known runs dear ops again more often than the relaxation does (or less), the side of the cut
// without that schedule is mostly soon excluded, and the side with it starts from a better bound.
#pragma once

#include <span>
#include <vector>

#include "regen/search/exact/stage_model.h"

namespace regen::search {

struct RerunBranching {
  std::vector<OpId> ops;
  // Second runs of these ops in the best schedule, and whether the relaxation has fewer.
  double best = 0;
  bool relaxed_below = false;

  // Both sides together are everything. The first holds the best schedule, the other does not.
  void keep_best_side(StageModel& program) const;
  void keep_other_side(StageModel& program) const;
};

// For the op on which `relaxed` and the best sequence disagree most, by cost: how often ops at
// least as dear run again, and then how often it does. Nothing if no disagreement is worth
// `least_cost`.
std::vector<RerunBranching> find_rerun_branchings(const StageModel& program,
                                                  const std::vector<double>& relaxed,
                                                  std::span<const OpId> best_sequence,
                                                  double least_cost);

}  // namespace regen::search
