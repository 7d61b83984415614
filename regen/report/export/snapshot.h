// A plan as a file that PyTorch's memory viewer opens (pytorch.org/memory_viz, torch.cuda._memory_viz):
// what torch.cuda.memory._dump_snapshot would write of a step under the plan.
//
//   segments        one with the fixed tensors, one with the planned addresses; their blocks are those of
//                   the end of the step
//   device_traces   an `alloc` when a tensor or workspace appears, and a free when it leaves
//
// Frames hold the user's line where the graph knows it, then the module and the op.
#pragma once

#include "regen/base/json.h"
#include "regen/base/result.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::report {

// The plan must be valid for the graph. pickle() makes a file of it.
Result<Json> memory_snapshot(const Graph& graph, const Plan& plan, const Link& link);

}  // namespace regen::report
