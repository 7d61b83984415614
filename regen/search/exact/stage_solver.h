// The exact optimum of the stage problem: a search for good schedules, a relaxation that excludes
// better ones, and branching where the two do not meet.
#pragma once

#include <string>
#include <vector>

#include "regen/search/planner.h"

namespace regen::search {

struct StageAnswer {
  PlanStatus status = PlanStatus::kUnknown;
  std::vector<OpId> sequence;  // empty if no schedule within the limits is known
  double cost = 0;
  double bound = 0;  // no stage schedule within the budget costs less
  std::string note;
};

// Needs a budget. `starts` are sequences of ops that may be good, over the budget or not.
StageAnswer solve_stages(const Problem& problem, const std::vector<std::vector<OpId>>& starts,
                         Effort& effort);

}  // namespace regen::search
