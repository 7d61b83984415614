// How fast tensors travel between the host and a device, as measured.
#pragma once

#include "regen/cost/device.h"
#include "regen/execute/device/device.h"

namespace regen::execute {

struct LinkOptions {
  Bytes bytes = Bytes{64} << 20;  // of each copy: large enough that its start does not count
  int repeats = 5;                // of which the median counts
};

// In bytes per second, by copies between an arena and host memory as the executor makes them: one
// way, the other, and both at once. Needs twice the bytes of a copy on either side, for a moment.
Result<Link> measure_link(ExecutionDevice& device, const LinkOptions& options = {});

}  // namespace regen::execute
