// The two checkpoint choices of Chen et al. as plain functions, so that one can use the other.
#pragma once

#include <vector>

#include "regen/search/build/checkpoint_plan.h"

namespace regen {

// Every k-th candidate, k = floor(sqrt(number of candidates)).
std::vector<OpId> sqrt_checkpoints(const Graph& graph, CandidateSet set, Accounting accounting);

// Walks the forward ops adding up what they make; a candidate becomes a checkpoint when the sum
// is over `segment_bytes`, and the sum starts again. The walk is ascending, or in Checkmate's
// accounting its depth-first order.
std::vector<OpId> greedy_checkpoints(const Graph& graph, const std::vector<OpId>& candidates,
                                     const std::vector<OpId>& walk, double segment_bytes);

// The order in which greedy_checkpoints walks.
std::vector<OpId> greedy_walk(const Graph& graph, Accounting accounting);

}  // namespace regen
