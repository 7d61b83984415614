#include "regen/execute/placement/reserve.h"

#include <algorithm>
#include <optional>

namespace regen::execute {
namespace {

// All reserves of the process: a deleter knows nothing but an address.
struct Left {
  std::shared_ptr<void> memory;
  std::unique_ptr<Reserve> reserve;
};

struct Register {
  std::mutex mutex;
  std::vector<Reserve*> reserves;
  std::vector<Left> left;

  // The one with that reserve, if it has no blocks any more.
  std::optional<Left> take_if_empty(const Reserve* reserve) {
    const auto at = std::ranges::find_if(
        left, [&](const Left& other) { return other.reserve.get() == reserve; });
    if (at == left.end() || reserve->live_blocks() > 0) return std::nullopt;
    Left taken = std::move(*at);
    left.erase(at);
    return taken;
  }
};

Register& all_reserves() {
  static auto* all = new Register;  // never destroyed: tensors may be freed at the very end
  return *all;
}

}  // namespace

Reserve::Reserve(void* begin, Bytes bytes, Bytes alignment)
    : begin_(static_cast<char*>(begin)), bytes_(bytes), alignment_(alignment) {
  Register& all = all_reserves();
  const std::lock_guard lock(all.mutex);
  all.reserves.push_back(this);
}

Reserve::~Reserve() {
  Register& all = all_reserves();
  const std::lock_guard lock(all.mutex);
  std::erase(all.reserves, this);
}

void* Reserve::take(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  const Bytes size = (bytes + alignment_ - 1) & ~(alignment_ - 1);
  Bytes begin = 0;
  auto next = blocks_.begin();
  while (next != blocks_.end() && next->begin - begin < size) begin = (next++)->end;
  if (bytes <= 0 || bytes_ - begin < size) return nullptr;
  blocks_.insert(next, {begin, begin + size});
  peak_ = std::max(peak_, begin + size);
  return begin_ + begin;
}

std::vector<std::pair<Bytes, Bytes>> Reserve::live_ranges() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Bytes, Bytes>> ranges;
  for (const Block& block : blocks_) ranges.emplace_back(block.begin, block.end);
  return ranges;
}

Bytes Reserve::live_bytes() const {
  const std::lock_guard lock(mutex_);
  Bytes sum = 0;
  for (const Block& block : blocks_) sum += block.end - block.begin;
  return sum;
}

std::size_t Reserve::live_blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_.size();
}

Bytes Reserve::peak_bytes() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

bool Reserve::give(void* address) {
  std::optional<Left> gone;  // outlives the lock, which its end takes
  Register& all = all_reserves();
  const std::lock_guard lock(all.mutex);
  bool is_inside = false;
  for (Reserve* reserve : all.reserves) {
    // Several may have the same memory: a room that is closed and the next one.
    is_inside |= reserve->contains(address);
    if (!reserve->give_block(address)) continue;
    gone = all.take_if_empty(reserve);
    return true;
  }
  return is_inside;
}

void Reserve::leave(std::unique_ptr<Reserve> reserve, std::shared_ptr<void> memory) {
  std::optional<Left> gone;
  Register& all = all_reserves();
  const std::lock_guard lock(all.mutex);
  const Reserve* const known = reserve.get();
  all.left.push_back({std::move(memory), std::move(reserve)});
  gone = all.take_if_empty(known);
}

bool Reserve::contains(const void* address) const {
  return address >= begin_ && address < begin_ + bytes_;
}

bool Reserve::give_block(const void* address) {
  const std::lock_guard lock(mutex_);
  if (!contains(address)) return false;
  const Bytes begin = static_cast<const char*>(address) - begin_;
  return std::erase_if(blocks_, [&](const Block& block) { return block.begin == begin; }) > 0;
}

}  // namespace regen::execute
