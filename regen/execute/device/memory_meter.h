// How many bytes a device really has in use: the measurement that a budget's promise is held
// against. It does not depend on plans, arenas' contents or placement.
#pragma once

#include <c10/core/Device.h>

#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::execute {

// On the CPU: what torch's allocator gave to any thread since install_memory_meter(), and arenas
// of CPU devices; allocated and reserved are the same. (Scratch that oneDNN takes from malloc is
// not seen.) On CUDA: torch's own statistics, and what the driver counts for the whole card,
// arenas and other processes included.
struct MemoryUse {
  Bytes allocated = 0;
  Bytes allocated_peak = 0;
  Bytes reserved = 0;
  Bytes reserved_peak = 0;
  Bytes driver = 0;  // CUDA only

  bool operator==(const MemoryUse&) const = default;
};

// Puts a counting allocator in front of torch's CPU allocator, for every thread. Not while a
// PlacementScope or RecordingScope is entered. Installing twice is no error.
Status install_memory_meter();
// Stops counting new allocations.
Status remove_memory_meter();

Result<MemoryUse> memory_use(c10::Device device);
// The peaks start again from what is in use now.
Status reset_memory_peak(c10::Device device);

// Gives memory back to the driver that torch keeps without using it. On a CPU it keeps none.
Status release_cached_memory(c10::Device device);

// Arenas come from the system and not from torch, and are counted by the code that makes them.
void count_arena_bytes(Bytes difference);

}  // namespace regen::execute
