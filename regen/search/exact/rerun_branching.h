// Rerun-count branching: a stage model is split in two by how OFTEN ops run again.
//
// Branching on single columns decides in which stage an op runs again; the relaxation then moves
// the re-run to the next stage. The sum over all stages cannot be evaded in this way. Where the
// best known schedule runs expensive ops again more often than the relaxation does (or less), the
// side without that schedule is usually excluded soon, and the side with it has a better bound.
#pragma once

#include <span>
#include <vector>

#include "regen/search/exact/stage_model.h"

namespace regen::search {

struct RerunBranching {
  std::vector<OpId> ops;
  // Re-runs of these ops in the best schedule, and whether the relaxation has fewer.
  double best = 0;
  bool relaxed_below = false;

  // Together the two sides cover the whole model. Only the first contains the best schedule.
  void keep_best_side(StageModel& model) const;
  void keep_other_side(StageModel& model) const;
};

// For the op on which `relaxed` and the best sequence differ most, by cost: first the number of
// re-runs of all ops at least as expensive, then the number of its own. Nothing if no difference
// costs at least `least_cost`.
std::vector<RerunBranching> find_rerun_branchings(const StageModel& model,
                                                  const std::vector<double>& relaxed,
                                                  std::span<const OpId> best_sequence,
                                                  double least_cost);

}  // namespace regen::search
