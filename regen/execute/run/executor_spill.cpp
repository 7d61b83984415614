// The arena's memory goes and comes back, in the middle of a step or between two.
#include <algorithm>

#include "regen/execute/device/quietly.h"
#include "regen/execute/run/executor.h"

namespace regen::execute {
namespace {

// Copying a small gap too takes less time than starting another copy.
constexpr Bytes kWorthOneCopy = 64 << 10;

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));  // a backtrace follows
}

}  // namespace

Bytes Executor::merge_gap() const {
  return device_->torch_device().is_cpu() ? 0 : kWorthOneCopy;
}

std::vector<MemoryRange> Executor::live_ranges(std::size_t position) const {
  std::vector<MemoryRange> ranges;
  for (const ArenaLife& life : list_.lives) {
    if (life.begin <= position && position < life.end) ranges.push_back({life.offset, life.bytes});
  }
  // Tensors from the reserve may live longer than a step.
  for (const auto& [begin, end] : reserve_->live_ranges()) {
    ranges.push_back({reserve_offset_ + begin, end - begin});
  }
  return merge_ranges(std::move(ranges), merge_gap());
}

Bytes Executor::live_bytes() const {
  return total_bytes(live_ranges(position_));
}

Bytes Executor::largest_live_bytes() const {
  Bytes largest = 0;
  for (std::size_t i = 0; i <= list_.instructions.size(); ++i) {
    largest = std::max(largest, total_bytes(live_ranges(i)));
  }
  return largest;
}

Status Executor::prepare_spill() {
  return take_spill_memory(largest_live_bytes());
}

Status Executor::take_spill_memory(Bytes bytes) {
  if (bytes <= spill_memory_.bytes()) return {};
  spill_memory_ = MemoryBlock();  // not both at once
  REGEN_ASSIGN(spill_memory_, device_->allocate_host(bytes));
  return {};
}

Result<Bytes> Executor::spill() {
  if (spilled()) return Bytes{0};
  if (!options_.releasable) {
    return bad_input(
        "the step's memory cannot be spilled, expected it to be compiled with releasable=True");
  }
  std::vector<MemoryRange> ranges = live_ranges(position_);
  REGEN_TRY(take_spill_memory(total_bytes(ranges)));
  try {
    // The last part may have run on another stream than the caller's.
    device_->wait(Queue::kCompute, computed_);
    device_->synchronize();
    pack_to_host(*device_, *arena_, ranges, spill_memory_.data());
    device_->synchronize();
  } catch (const std::exception& error) {
    quietly(Lost::kDrop, [&] { device_->synchronize(); });  // copies may be under way
    return bad_input("the step's memory cannot be spilled: " + first_line(error));
  }
  REGEN_TRY(arena_->release_pages());
  spilled_ = std::move(ranges);
  return arena_->bytes();
}

Status Executor::restore() {
  if (!spilled()) return {};
  REGEN_TRY(arena_->take_pages());
  try {
    unpack_to_device(*device_, *arena_, spilled_, spill_memory_.data());
    device_->synchronize();
  } catch (const std::exception& error) {
    quietly(Lost::kDrop, [&] { device_->synchronize(); });
    static_cast<void>(arena_->release_pages());  // the host has everything still
    return bad_input("the step's memory cannot be restored: " + first_line(error));
  }
  spilled_.clear();
  return {};
}

}  // namespace regen::execute
