// Nothing is kept but the value just made: the least memory that a sequential schedule can get
// by with on a chain, at a cost that grows with the square of its length.
#pragma once

#include <vector>

#include "regen/base/limit.h"
#include "regen/graph/graph.h"

namespace regen::published {

// The sequence in which nothing but the outputs of the op just run is ever kept; empty when
// `effort` ran out or it would pass `max_steps`. Counts one unit of work for each op run.
std::vector<OpId> keep_last_sequence(const Graph& graph, std::size_t max_steps, Effort& effort);

}  // namespace regen::published
