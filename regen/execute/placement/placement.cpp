#include "regen/execute/placement/placement.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "regen/execute/placement/allocation_hook.h"

namespace regen::execute {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message);
}

}  // namespace

class PlacementHook final : public AllocationHook {
 public:
  PlacementHook(c10::Device device, Reserve& reserve)
      : AllocationHook(device), reserve_(&reserve) {}

  void serve(std::span<const PlacedSlot> slots, std::string_view label, Unforeseen unforeseen) {
    slots_ = slots;
    label_ = label;
    unforeseen_ = unforeseen;
    next_ = 0;
    live_.clear();
    set_active(true);
  }

  std::size_t finish() {
    set_active(false);
    live_.clear();
    const auto unasked = static_cast<std::size_t>(
        std::count_if(slots_.begin() + static_cast<std::ptrdiff_t>(next_), slots_.end(),
                      [](const PlacedSlot& slot) { return slot.bytes > 0; }));
    if (unasked > 0) deviation().unasked += unasked;
    slots_ = {};
    next_ = 0;
    return unasked;
  }

  Place place(std::size_t bytes) override {
    const auto wanted = static_cast<Bytes>(bytes);
    if (unforeseen_ == Unforeseen::kReserve) {
      while (next_ < slots_.size() && slots_[next_].bytes == 0) ++next_;
    }
    if (next_ == slots_.size() || !is_for(slots_[next_], wanted) || occupied(slots_[next_])) {
      return unforeseen(wanted);
    }
    const PlacedSlot& slot = slots_[next_++];
    live_.push_back(slot);
    return {slot.address, &delete_placed};
  }

  void asked_for_nothing() override {
    if (unforeseen_ == Unforeseen::kReserve) return;
    if (next_ == slots_.size() || slots_[next_].bytes != 0) throw_other(0);
    ++next_;
  }

  void forwarded(const void* /*address*/, std::size_t /*bytes*/) override {}

  bool freed(const void* address) override {
    const auto found = std::find_if(live_.rbegin(), live_.rend(),
                                    [&](const PlacedSlot& s) { return s.address == address; });
    if (found == live_.rend()) return false;
    *found = live_.back();
    live_.pop_back();
    return true;
  }

  const std::vector<Deviation>& deviations() const { return deviations_; }

 private:
  static bool is_for(const PlacedSlot& slot, Bytes wanted) {
    return slot.at_most ? wanted <= slot.bytes : wanted == slot.bytes;
  }

  static const char* end(const PlacedSlot& slot) {
    return static_cast<const char*>(slot.address) + slot.bytes;
  }

  // Two allocations of one call may have the same address when the first is freed before the
  // second is made. If that happens in another order than recorded, the address is not free.
  bool occupied(const PlacedSlot& slot) const {
    return std::any_of(live_.begin(), live_.end(), [&](const PlacedSlot& other) {
      return slot.address < end(other) && other.address < end(slot);
    });
  }

  Place unforeseen(Bytes bytes) {
    if (unforeseen_ == Unforeseen::kRefuse) throw_other(bytes);
    void* address = reserve_->take(bytes);
    if (address == nullptr) throw_full(bytes);
    Deviation& where = deviation();
    ++where.unforeseen;
    where.unforeseen_bytes += bytes;
    return {address, &Reserve::release};
  }

  [[noreturn]] void throw_full(Bytes bytes) const {
    refuse("regen: " + std::string(label_) + " asks for " + format_bytes(bytes) +
           " that its recording did not foresee, and the reserve of " +
           format_bytes(reserve_->bytes()) + " has no room for it (" +
           format_count(reserve_->live_blocks(), "block") + " of " +
           format_bytes(reserve_->live_bytes()) + " in use)");
  }

  [[noreturn]] void throw_other(Bytes bytes) const {
    refuse("regen: " + std::string(label_) + " asks for " + format_bytes(bytes) +
           " where the planned algorithm asks for other memory");
  }

  Deviation& deviation() {
    const auto found = std::find_if(deviations_.begin(), deviations_.end(),
                                    [&](const Deviation& d) { return d.label == label_; });
    if (found != deviations_.end()) return *found;
    return deviations_.emplace_back(Deviation{.label = std::string(label_)});
  }

  Reserve* reserve_;
  std::span<const PlacedSlot> slots_;
  std::string_view label_;
  Unforeseen unforeseen_ = Unforeseen::kReserve;
  std::size_t next_ = 0;
  std::vector<PlacedSlot> live_;  // of this call, not freed yet
  std::vector<Deviation> deviations_;
};

class RecordingHook final : public AllocationHook {
 public:
  using AllocationHook::AllocationHook;

  void start(RecordingRules rules) {
    rules_ = std::move(rules);
    next_result_ = 0;
    recorded_.clear();
    moment_ = 0;
    set_active(true);
  }

  std::vector<RecordedAllocation> stop() {
    set_active(false);
    return std::exchange(recorded_, {});
  }

  Place place(std::size_t bytes) override {
    const auto wanted = static_cast<Bytes>(bytes);
    if (next_result_ < rules_.results.size() && rules_.results[next_result_] == wanted) {
      ++next_result_;
    } else if (rules_.cap && wanted > *rules_.cap) {
      refuse("regen: " + format_bytes(wanted) + " are asked for under a cap of " +
             format_bytes(*rules_.cap));
    }
    return {};
  }

  void asked_for_nothing() override {
    if (!rules_.empty_requests) return;
    recorded_.push_back({.bytes = 0, .birth = moment_, .death = moment_ + 1});
    moment_ += 2;
  }

  void forwarded(const void* address, std::size_t bytes) override {
    recorded_.push_back(
        {.bytes = static_cast<Bytes>(bytes), .birth = moment_++, .address = address});
  }

  bool freed(const void* address) override {
    if (!active()) return false;
    const int index = find_allocation(recorded_, address);
    if (index >= 0) recorded_[static_cast<std::size_t>(index)].death = moment_++;
    return false;
  }

 private:
  RecordingRules rules_;
  std::size_t next_result_ = 0;
  std::vector<RecordedAllocation> recorded_;
  std::uint32_t moment_ = 0;
};

Result<PlacementScope> PlacementScope::enter(c10::Device device, Reserve& reserve) {
  auto hook = std::make_unique<PlacementHook>(device, reserve);
  REGEN_TRY(enter_hook(*hook));
  return PlacementScope(std::move(hook));
}

PlacementScope::PlacementScope(std::unique_ptr<PlacementHook> hook) : hook_(std::move(hook)) {}
PlacementScope::PlacementScope(PlacementScope&&) noexcept = default;
PlacementScope::~PlacementScope() {
  if (hook_) leave_hook(*hook_);
}

void PlacementScope::serve(std::span<const PlacedSlot> slots, std::string_view label,
                           Unforeseen unforeseen) {
  hook_->serve(slots, label, unforeseen);
}
std::size_t PlacementScope::finish() {
  return hook_->finish();
}
const std::vector<Deviation>& PlacementScope::deviations() const {
  return hook_->deviations();
}

Result<RecordingScope> RecordingScope::enter(c10::Device device) {
  auto hook = std::make_unique<RecordingHook>(device);
  REGEN_TRY(enter_hook(*hook));
  return RecordingScope(std::move(hook));
}

RecordingScope::RecordingScope(std::unique_ptr<RecordingHook> hook) : hook_(std::move(hook)) {}
RecordingScope::RecordingScope(RecordingScope&&) noexcept = default;
RecordingScope::~RecordingScope() {
  if (hook_) leave_hook(*hook_);
}

void RecordingScope::start(RecordingRules rules) {
  hook_->start(std::move(rules));
}
std::vector<RecordedAllocation> RecordingScope::stop() {
  return hook_->stop();
}

int find_allocation(std::span<const RecordedAllocation> recorded, const void* address) {
  for (std::size_t i = recorded.size(); i-- > 0;) {
    if (recorded[i].address == address && recorded[i].death == RecordedAllocation::kAlive)
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace regen::execute
