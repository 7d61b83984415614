// The points of a sweep, and how they are written.
#pragma once

#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/search/planner.h"

namespace regen::cli {

// One planner at one budget. The plan itself is dropped: a thousand of them may not fit.
struct SweepPoint {
  std::string planner;
  Bytes budget = 0;
  search::PlanStatus status = search::PlanStatus::kUnknown;
  Simulation simulation;
  double lower_bound = 0;
  search::BoundKind bound_kind = search::BoundKind::kEveryPlan;
  double gap = 0;
  double seconds = 0;
  std::string note;
  bool begun = false;  // false: Ctrl-C came first

  bool found() const {
    return status == search::PlanStatus::kOptimal || status == search::PlanStatus::kFeasible;
  }
};

std::string sweep_csv(const std::vector<SweepPoint>& points);
Json sweep_json(const std::vector<SweepPoint>& points);

}  // namespace regen::cli
