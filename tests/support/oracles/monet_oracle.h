// Small random instances of MONeT's program, and their optimum by trying everything.
#pragma once

#include <optional>

#include "regen/base/random.h"
#include "regen/published/monet/monet_evaluator.h"

namespace regen::testing {

// Two or three forward ops, perhaps with a by-product, an op that may run in place and one with
// two algorithms, a loss, and a backward node for each op with one to three implementations.
published::MonetInstance random_monet_instance(Random& random);

// The least objective over all matrices, judged stage by stage; nothing if none fits.
std::optional<published::Ticks> least_monet_objective(const published::MonetInstance& instance,
                                                      Bytes budget,
                                                      const published::MonetRules& rules);

}  // namespace regen::testing
