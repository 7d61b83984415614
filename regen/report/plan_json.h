// The part of a report that is about one plan.
#pragma once

#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/report/facts.h"
#include "regen/report/modules.h"

namespace regen::report {

Result<Json> plan_json(const Graph& graph, const Plan& plan, const ModuleTree& tree,
                       const Facts& facts);

}  // namespace regen::report
