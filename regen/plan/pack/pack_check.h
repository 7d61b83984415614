// Whether a packing is one. Shares no code with the packer, compares every pair, and is meant
// for tests, files from elsewhere and suspicion.
#pragma once

#include <span>

#include "regen/plan/pack/pack.h"

namespace regen {

// Refuses the first lifetime that leaves [0, capacity) or meets another in both time and
// memory; the message names both and where they lie.
Status check_packing(std::span<const Lifetime> lifetimes, std::span<const Bytes> offsets,
                     Bytes capacity, Bytes alignment = 1);

}  // namespace regen
