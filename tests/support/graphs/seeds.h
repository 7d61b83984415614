// How much of a comparison with an oracle runs, and on which random graphs.
//
// REGEN_EXHAUSTIVE=1 asks for all of it, which takes minutes to an hour. REGEN_SEED=N adds N to every seed:
// a comparison for the record runs on graphs that none was developed on (CONTRIBUTING.md, seeds).
#pragma once

#include <cstdint>

namespace regen::testing {

bool exhaustive();

// N of REGEN_SEED, or 0.
std::uint64_t first_seed();

}  // namespace regen::testing
