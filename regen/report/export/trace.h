// The timeline of a plan for Perfetto with what a report knows beside it: the module of each op, and
// the bytes on the device by what they are for.
#pragma once

#include <string>

#include "regen/base/result.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::report {

// The plan must be valid for the graph.
Result<std::string> perfetto_trace(const Graph& graph, const Plan& plan, const Link& link);

}  // namespace regen::report
