// The memory of a job that can be moved off its device for other jobs.
#pragma once

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/share/protocol/job.h"

namespace regen::share {

// Called by one thread at a time, and never while the job works on the device.
class MovableMemory {
 public:
  virtual ~MovableMemory() = default;

  // Moves memory off the device, to this depth if possible. Returns the bytes that are still on it.
  virtual Bytes make_room(Depth depth) = 0;
  // The device is the job's again: memory that all work needs comes back. Memory of one step may
  // stay away until that step runs.
  virtual Status come_back() = 0;
};

}  // namespace regen::share
