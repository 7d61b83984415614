// From a schedule of MONeT's model to steps.
#pragma once

#include "regen/plan/plan.h"
#include "regen/published/monet/monet_binding.h"
#include "regen/published/monet/monet_evaluator.h"

namespace regen::published {

// The steps of each stage in the order of the nodes: recomputations, then the backward op. A tensor
// leaves right after its last use before it is made again, which may be sooner than the model
// counts. Ops that only the graph has (updates, results of their own) run last, in order.
Plan plan_of_monet(const Graph& graph, const MonetBinding& binding, const MonetSolution& solution);

}  // namespace regen::published
