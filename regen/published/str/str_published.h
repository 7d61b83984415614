// STR's own 0-1 model, for comparison: swaps are admitted only where they should be hidden by the
// computation of their stages, and cost nothing.
//
// Beside R and S (exact/stage_problem.h) there are, for value i and stage t,
//
//   P[t, i]  the copy to the host starts in stage t; at most once
//   Q[t, i]  the copy back starts in stage t; as often as P at least, at most five times as often
//
// A copy that starts in stage t is done in the first stage by whose end the first runs of t and
// later have taken as long as it does. Until then no other copy may be under way in its direction.
// A value that came back can be used from the stage after that. Memory is counted as Checkmate's
// model counts it, by what is freed after which op. The simulator may price the plan differently:
// it may stall, and need more or less memory (docs/reference/planners.md).
#pragma once

#include "regen/published/checkmate/stage_matrices.h"
#include "regen/search/exact/linear_model.h"
#include "regen/search/planner.h"

namespace regen::published {

struct StrAnswer {
  search::ModelStatus status = search::ModelStatus::kFailed;
  std::optional<StageMatrices> matrices;  // of the best point known
  double cost = 0;                        // of its computes; copies are free
};

// Graphs of at most 96 ops, each with one tensor and one variant; needs a budget.
Result<StrAnswer> solve_published_str(const search::Problem& problem, Effort& effort);

}  // namespace regen::published
