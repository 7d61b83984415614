#include "regen/execute/placement/lent_room.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "regen/execute/placement/allocation_hook.h"

namespace regen::execute {
namespace {

c10::Stream present_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

Bytes live_bytes(const std::vector<std::unique_ptr<Reserve>>& ranges) {
  Bytes sum = 0;
  for (const auto& range : ranges) sum += range->live_bytes();
  return sum;
}

}  // namespace

class LentRoomHook final : public AllocationHook {
 public:
  explicit LentRoomHook(std::shared_ptr<LentRoom> room)
      : AllocationHook(room->device_), room_(std::move(room)) {
    set_active(true);
  }
  ~LentRoomHook() override {
    if (thread_hook == this) leave_hook(*this);
  }

  Place place(std::size_t bytes) override {
    if (is_over()) return {};
    void* address = room_->take(static_cast<Bytes>(bytes));
    if (address == nullptr) return {};
    return {address, &Reserve::release};
  }
  void asked_for_nothing() override {}
  void forwarded(const void*, std::size_t) override {}
  bool freed(const void*) override { return false; }
  Bytes live_bytes() const override { return 0; }
  bool is_over() const override { return !room_->open_; }
  bool sees_ends() const override { return false; }

 private:
  std::shared_ptr<LentRoom> room_;
};

namespace {

// Ends with the thread if the room was not closed.
thread_local std::unique_ptr<LentRoomHook> hook_of_thread;

}  // namespace

LentRoom::LentRoom(std::shared_ptr<MemoryBlock> arena, const Ranges& free, c10::Device device,
                   Bytes alignment)
    : arena_(std::move(arena)),
      device_(device),
      stream_(present_stream(device)),
      least_(device.is_cpu() ? kLeastLentOnCpu : kLeastLent) {
  for (const auto& [begin, end] : free) {
    const Bytes first = (begin + alignment - 1) / alignment * alignment;
    if (end - first < least_) continue;
    ranges_.push_back(std::make_unique<Reserve>(arena_->at(first), end - first, alignment));
  }
}

LentRoom::~LentRoom() {
  for (auto& range : ranges_) Reserve::leave(std::move(range), arena_);
}

Result<std::shared_ptr<LentRoom>> LentRoom::open(std::shared_ptr<MemoryBlock> arena,
                                                 const Ranges& free, c10::Device device,
                                                 Bytes alignment) {
  std::shared_ptr<LentRoom> room(new LentRoom(std::move(arena), free, device, alignment));
  hook_of_thread.reset();
  auto hook = std::make_unique<LentRoomHook>(room);
  REGEN_TRY(enter_hook(*hook));
  hook_of_thread = std::move(hook);
  return room;
}

void LentRoom::close() {
  open_ = false;
  if (hook_of_thread && hook_of_thread->is_over()) hook_of_thread.reset();
}

void* LentRoom::take(Bytes bytes) {
  if (bytes < least_ || present_stream(device_) != stream_) return nullptr;
  for (const auto& range : ranges_) {
    if (void* address = range->take(bytes)) return address;
  }
  return nullptr;
}

Bytes LentRoom::held_bytes() const {
  return live_bytes(ranges_);
}

bool LentRoom::holds(const void* address) const {
  const auto* begin = static_cast<const char*>(arena_->data());
  const auto* at = static_cast<const char*>(address);
  return at >= begin && at < begin + arena_->bytes();
}

}  // namespace regen::execute
