// Greedy packing: items are taken in some order, and each falls to the lowest place that is
// free over its whole life. Fast at any size; how good it is depends on the order alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/base/limit.h"
#include "regen/plan/pack_problem.h"

namespace regen {

struct Fit {
  std::vector<std::int64_t> offsets;  // one for each item of the part, in units
  std::int64_t height = 0;
};

Fit make_fit(const PackPart& part, std::vector<std::int64_t> offsets);

// Tries several orders, and with `improve` repairs the best of them, until one stays within
// `target` units; else returns the lowest packing seen.
Fit greedy_fit(const PackPart& part, std::int64_t target, bool improve, Effort& effort);

}  // namespace regen
