// What a user may say about how a step is planned and run, and what follows from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "regen/base/limit.h"
#include "regen/cost/device.h"
#include "regen/execute/record/record.h"
#include "regen/session/budget.h"

namespace regen::session {

// Seconds for a search that was given none: where nothing better comes later, and where it does.
inline constexpr double kWholeSeconds = 5;
inline constexpr double kFirstSeconds = 1;
// For the search beside the training.
inline constexpr double kBackgroundSeconds = 20;
// For the search for the least budget, should it not end by itself.
inline constexpr double kLeastSeconds = 15;
// For the plans of all budgets of a job together.
inline constexpr double kCurveSeconds = 1;
// Host memory that a search beside the training may take for its models.
inline constexpr Bytes kBackgroundBytes = Bytes{512} << 20;

struct Settings {
  std::optional<Budget> budget;  // absent: what the job may use, or no limit
  std::vector<std::string> planners{"auto"};
  std::optional<Budget> host_budget;
  double time_limit = 0;        // seconds; 0: none
  std::int64_t work_limit = 0;  // counted; 0: none
  bool debug = false;
  std::string cache_folder = {};  // of plans and measurements; empty: none
  std::optional<Link> link;       // absent: measured
  std::string plan_file = {};     // the plan to use; empty: one is searched for
  std::optional<double> improve;  // seconds of search beside the training; absent: on a GPU
  bool cuda_graphs = false;       // launch equal stretches as a whole
  bool releasable = false;        // the arena may leave the device
  // Of a step in two parts: gradients are the plan's, for a caller that drops them before the next step.
  bool lends_gradients = false;
  execute::Algorithms algorithms = execute::Algorithms::kDefault;
  Bytes search_bytes = kBackgroundBytes;  // host memory of the search beside the training

  // How long a better plan is searched for while the steps go on; 0: not at all. Not on a CPU
  // unless asked for, where planner and step would compete for the cores; nor beside a search of
  // counted work, which is to give the same plan every time.
  double background_seconds(bool on_cpu) const;

  // For a plan that is waited for. Counted work alone has no clock, so that it gives the same plan
  // on a slow machine.
  Limits first_limits(bool on_cpu) const;
  // For the search beside the training.
  Limits background_limits(bool on_cpu) const;
  // In so many seconds, unless the settings count work.
  Limits limits_within(double seconds) const;
};

}  // namespace regen::session
