// The part of a report that is the same for all plans of a graph.
#pragma once

#include "regen/base/json.h"
#include "regen/graph/graph.h"
#include "regen/report/modules.h"

namespace regen::report {

Json graph_json(const Graph& graph, const ModuleTree& tree);

}  // namespace regen::report
