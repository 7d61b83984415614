#include "regen/execute/placement/packed_copy.h"

#include <algorithm>

namespace regen::execute {
namespace {

// Calls copy(offset in the device's memory, offset in the packed block, bytes).
template <typename Copy>
void for_each_chunk(std::span<const MemoryRange> ranges, const Copy& copy) {
  Bytes packed = 0;
  for (const MemoryRange& range : ranges) {
    for (Bytes done = 0; done < range.bytes; done += kCopyChunk) {
      const Bytes bytes = std::min(kCopyChunk, range.bytes - done);
      copy(range.offset + done, packed + done, bytes);
    }
    packed += range.bytes;
  }
}

}  // namespace

std::vector<MemoryRange> merge_ranges(std::vector<MemoryRange> ranges, Bytes gap) {
  std::sort(ranges.begin(), ranges.end(),
            [](const MemoryRange& a, const MemoryRange& b) { return a.offset < b.offset; });
  std::vector<MemoryRange> merged;
  for (const MemoryRange& range : ranges) {
    if (range.bytes <= 0) continue;
    if (!merged.empty() && range.offset <= merged.back().offset + merged.back().bytes + gap) {
      MemoryRange& last = merged.back();
      last.bytes = std::max(last.bytes, range.offset + range.bytes - last.offset);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

Bytes total_bytes(std::span<const MemoryRange> ranges) {
  Bytes sum = 0;
  for (const MemoryRange& range : ranges) sum += range.bytes;
  return sum;
}

void pack_to_host(ExecutionDevice& device, const MemoryBlock& memory,
                  std::span<const MemoryRange> ranges, void* host) {
  for_each_chunk(ranges, [&](Bytes offset, Bytes packed, Bytes bytes) {
    device.copy(Queue::kToHost, static_cast<char*>(host) + packed, memory.at(offset), bytes);
  });
}

void unpack_to_device(ExecutionDevice& device, const MemoryBlock& memory,
                      std::span<const MemoryRange> ranges, const void* host) {
  for_each_chunk(ranges, [&](Bytes offset, Bytes packed, Bytes bytes) {
    device.copy(Queue::kToDevice, memory.at(offset), static_cast<const char*>(host) + packed,
                bytes);
  });
}

}  // namespace regen::execute
