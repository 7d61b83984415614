// Device bytes that a running step takes beside what its plan counts. Every number of this kind is
// here, and nowhere else.
#pragma once

#include "regen/base/units.h"
#include "regen/execute/device/device.h"

namespace regen::session {

struct RuntimeReserve {
  // Room at the end of the arena for allocations that the recording did not foresee.
  Bytes allocations = 0;
  // What a driver hands out at once. An arena ends inside such a page, and small tensors of the
  // caller begin another.
  Bytes page = 0;
  // What a driver takes for each call of a stretch that is launched as a whole.
  Bytes captured_call = 0;
  // Kernels that are first called during a step are loaded into memory that no allocator counts.
  Bytes kernels = 0;
  // Those that a process has loaded before anything is recorded: what made the weights and the first
  // batch. What the driver counts was 50 to 72 MiB above the plan of a whole step without this
  // (benchmarks/transformers_steps.py, four models on an H200).
  Bytes kernels_before = 0;
  // What the driver counts beside torch's memory while this process has the card for itself: its
  // context and its kernels, half a gibibyte on an H200. Beyond this others are there, and what the
  // driver counts says nothing about this process.
  Bytes alone = 0;

  bool operator==(const RuntimeReserve&) const = default;
};

RuntimeReserve runtime_reserve(c10::Device device);
RuntimeReserve runtime_reserve(const execute::ExecutionDevice& device);

// Libraries (cuBLAS) take memory at their first call and keep it. Notes what a recording has seen
// them take and returns the most that any recording of this process has seen on the device: a later
// recording finds the memory taken already and sees nothing.
Bytes note_library_bytes(const execute::ExecutionDevice& device, Bytes taken);

// The code of kernels that was loaded between two looks at what the driver counts beside torch's
// memory and the arena. Believed up to the reserve, and not at all where other processes use the
// card.
Bytes loaded_kernel_bytes(const RuntimeReserve& reserve, Bytes beside_before, Bytes beside_after);
// Notes it as note_library_bytes() does.
Bytes note_kernel_bytes(const execute::ExecutionDevice& device, Bytes beside_before,
                        Bytes beside_after);

}  // namespace regen::session
