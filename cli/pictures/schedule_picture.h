// A plan as data for a picture: what every op does in every stage, and the memory curve.
#pragma once

#include <optional>
#include <string>

#include "regen/base/json.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/simulate/simulate.h"

namespace regen::cli {

// A stage ends with the first run of an op, so there are as many stages as ops. Large plans are
// reduced to at most `max_cells` cells each way; a cell then shows the most telling thing that
// happens in it. `simulation` must hold records.
//
//   grid     one text for each op: '.' absent, 'c' computed, 'r' recomputed, 'k' kept on the
//            device, 'm' a copy begins, 'h' only on the host
//   memory   [position in stages, bytes on the device]
Json schedule_picture(const Graph& graph, const Plan& plan, const Simulation& simulation,
                      std::optional<Bytes> budget, std::size_t max_cells = 800);

}  // namespace regen::cli
