// The same training step at another batch, for graphs that come from a file and cannot be built
// again.
//
// Everything grows in proportion to the batch: bytes, workspaces and costs. Only what belongs to
// the parameters stays: tensors of kind param and state, what ops of the update phase read and
// make, and these ops. That overstates what does not grow quite so (gradients of parameters on
// their way to the update), so a batch that fits here fits in truth.
#pragma once

#include <cstdint>
#include <optional>

#include "regen/graph/graph.h"

namespace regen {

// The batch that the graph's attributes state: a whole number of at least 1 as "batch". Absent if
// they state none; bad input if it is something else.
Result<std::optional<std::int64_t>> stated_batch(const Graph& graph);

// `graph`, a step at batch `from`, as it would be at batch `to`; both at least 1.
Result<Graph> at_batch(const Graph& graph, std::int64_t from, std::int64_t to);

}  // namespace regen
