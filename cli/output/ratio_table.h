// How far each planner is from the best possible, over the budgets of a sweep.
#pragma once

#include <string>
#include <vector>

#include "cli/output/sweep_points.h"

namespace regen::cli {

// Cost of one planner over what the reference proved at the same budget: its cost where that is
// optimal, its lower bound elsewhere (the true ratio is then smaller). Only budgets where both have
// a plan count; a reference that never has one (it proves bounds only) counts everywhere.
struct RatioRow {
  std::string planner;
  double geometric_mean = 0;
  double maximum = 0;
  int optimal = 0;  // budgets compared with a proven optimum
  int bounded = 0;  // budgets compared with a lower bound

  int budgets() const { return optimal + bounded; }
};

// A row for each planner, in the order of the points.
std::vector<RatioRow> ratio_rows(const std::vector<SweepPoint>& points,
                                 const std::string& reference);

std::string ratio_text(const std::vector<RatioRow>& rows, const std::string& reference);
Json ratio_json(const std::vector<RatioRow>& rows, const std::string& reference);

}  // namespace regen::cli
