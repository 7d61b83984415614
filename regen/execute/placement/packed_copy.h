// Ranges of a device's memory to one packed host block and back, in chunks, so that what others
// enqueue on the copy queues gets in between.
#pragma once

#include <span>
#include <vector>

#include "regen/execute/device/device.h"

namespace regen::execute {

inline constexpr Bytes kCopyChunk = Bytes{32} << 20;

struct MemoryRange {
  Bytes offset = 0;
  Bytes bytes = 0;

  bool operator==(const MemoryRange&) const = default;
};

// In order of their offsets; ranges that overlap, or lie no further than `gap` apart, become one.
std::vector<MemoryRange> merge_ranges(std::vector<MemoryRange> ranges, Bytes gap);
Bytes total_bytes(std::span<const MemoryRange> ranges);

// Enqueue the copies on the queue to the host, or to the device; waiting is up to the caller.
// `host` has room for the sum of the ranges.
void pack_to_host(ExecutionDevice& device, const MemoryBlock& memory,
                  std::span<const MemoryRange> ranges, void* host);
void unpack_to_device(ExecutionDevice& device, const MemoryBlock& memory,
                      std::span<const MemoryRange> ranges, const void* host);

}  // namespace regen::execute
