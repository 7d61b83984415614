// Schedules of the lower-set solvers on the command line: judged by simulate, written by plan.
#pragma once

#include <string>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::cli {

// Checks the schedule, which is the text of the file at `path`, and prints its peaks and overhead.
Status simulate_schedule(const Graph& graph, const std::string& text, const std::string& path,
                         bool json);

// Writes the plan as a schedule; the graph must have come from a lower-set file.
Status write_schedule_file(const Graph& graph, const Plan& plan, const std::string& path);

}  // namespace regen::cli
