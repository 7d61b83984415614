// Greedy packing, fast at any size. The lowest stretch of the surface takes the most wanted
// item that lives within it; if there is none it is lifted to its lower neighbour. No gap is
// closed while something could still fill it, so that waste is rare; how rare depends on what
// is wanted most.
#pragma once

#include <cstdint>
#include <vector>

#include "regen/base/limit.h"
#include "regen/plan/pack/pack_problem.h"

namespace regen {

struct Fit {
  std::vector<std::int64_t> offsets;  // one for each item of the part, in units
  std::int64_t height = 0;
};

Fit make_fit(const PackPart& part, std::vector<std::int64_t> offsets);

// Tries several orders of preference, and with `improve` corrects the best of them, until one
// stays within `target` units; else returns the lowest packing seen. Always returns one,
// even if the effort is exhausted.
Fit greedy_fit(const PackPart& part, std::int64_t target, bool improve, Effort& effort);

}  // namespace regen
