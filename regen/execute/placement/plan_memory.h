// The memory that a plan with addresses takes beside the fixed tensors: the arena and the host slab.
#pragma once

#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen::execute {

struct PlanMemory {
  Bytes arena = 0;
  Bytes slab = 0;
  std::vector<Bytes> slab_offsets;  // of each offload, in the order of the plan
};

// The plan must be valid and have addresses.
Result<PlanMemory> plan_memory(const Graph& graph, const Plan& plan, Bytes alignment);

// The plan has addresses, and all of them are multiples of the alignment.
Status check_alignment(const Plan& plan, Bytes alignment);

}  // namespace regen::execute
