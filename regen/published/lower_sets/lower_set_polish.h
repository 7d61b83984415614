// Between chains of lower sets that are equal in the published model, which does not count
// everything that their execution costs.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "regen/published/lower_sets/lower_set_published.h"

namespace regen::published {

// What executing a chain costs, the recomputations that the model leaves out with it.
using ChainCost = std::function<double(const std::vector<std::uint32_t>&)>;

// Many chains are equal in the model. A chain that is no worse in it and cheaper to execute, found
// by leaving sets out that save nothing and by exchanging one set at a time.
PublishedStrategy polish_published(const LowerSetNodes& nodes, const LowerSetFamily& family,
                                   Bytes budget, PublishedStrategy strategy,
                                   const ChainCost& executed);

}  // namespace regen::published
