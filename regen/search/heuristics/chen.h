// The two checkpoint choices of Chen et al.; the planner `chen_greedy` tries segment sizes.
#pragma once

#include <vector>

#include "regen/search/build/checkpoint_plan.h"

namespace regen::search {

// Every k-th candidate, k = floor(sqrt(number of candidates)).
std::vector<OpId> sqrt_checkpoints(const Problem& problem, CandidateSet set);

// Walks the forward ops adding up what they make; a candidate becomes a checkpoint when the sum
// is over `segment_bytes`, and the sum starts again. The walk is the accounting's.
std::vector<OpId> greedy_checkpoints(const Graph& graph, const std::vector<OpId>& candidates,
                                     const std::vector<OpId>& walk, double segment_bytes);

}  // namespace regen::search
