// What a job has on its device, as far as it can get out of the way of others.
#pragma once

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

// Called by one thread at a time, and never while the job works on the device.
class MovableMemory {
 public:
  virtual ~MovableMemory() = default;

  // To this depth, as far as it goes. Returns what is still on the device.
  virtual Bytes make_room(Depth depth) = 0;
  // The device is the job's again: what every work needs comes back. What one step alone needs may
  // stay away until that step runs.
  virtual Status come_back() = 0;
};

}  // namespace regen::share
