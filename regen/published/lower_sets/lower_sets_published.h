// The planners over lower sets in the published model: strategies chosen by its formulas and, where
// the graph came from a lower-set file, executed as the published code executes them.
#pragma once

#include "regen/search/planner.h"

namespace regen::published {

enum class PublishedSets : std::uint8_t { kAll, kPruned, kCuts };

Result<search::Proposal> plan_published_lower_sets(const search::Problem& problem,
                                                   PublishedSets sets, Effort& effort);

}  // namespace regen::published
