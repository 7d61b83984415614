// Addresses to draw a plan with: its own, or where it has none, those of a quick packing.
#pragma once

#include <vector>

#include "regen/base/result.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::report {

struct Layout {
  std::vector<Bytes> addresses;  // as Plan::addresses
  Bytes bytes = 0;               // the highest end of an allocation
  bool of_plan = false;          // the plan's own, so that its peak counts them
};

Result<Layout> layout_of(const Graph& graph, const Plan& plan);

}  // namespace regen::report
