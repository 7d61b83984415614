// docs/reference/plan-semantics.md read as plainly as possible: slow, and independent of the
// simulator and the validator. It assumes that the plan is valid.
#pragma once

#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::testing {

struct NaiveResult {
  Bytes peak_bytes = 0;
  Bytes activation_peak_bytes = 0;
  Bytes host_peak_bytes = 0;
  double makespan = 0;
  double stall = 0;
};

NaiveResult interpret(const Graph& graph, const Plan& plan, const Link& link);

}  // namespace regen::testing
