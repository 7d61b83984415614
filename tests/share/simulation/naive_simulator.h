// The policies once more, without events: second by second, everything looked at each time. Only
// trainings with one point, whole seconds, no quanta.
#pragma once

#include <vector>

#include "regen/share/simulation/simulation.h"

namespace regen::share {

// When each job ends, in seconds.
std::vector<std::int64_t> naive_ends(const Trace& trace, const SimulationOptions& options);

}  // namespace regen::share
