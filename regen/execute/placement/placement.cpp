#include "regen/execute/placement/placement.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "regen/execute/placement/allocation_hook.h"

namespace regen::execute {
namespace {

constexpr Bytes kNumberBytes = 16;  // a complex one

[[noreturn]] void refuse(const std::string& message) {
  throw c10::OutOfMemoryError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, message);
}

}  // namespace

class PlacementHook final : public AllocationHook {
 public:
  PlacementHook(c10::Device device, Reserve& reserve, Bytes beside)
      : AllocationHook(device), reserve_(&reserve), beside_(beside) {}

  void serve(std::span<const PlacedSlot> slots, std::string_view label, Unforeseen unforeseen) {
    slots_ = slots;
    label_ = label;
    rule_ = unforeseen;
    next_ = 0;
    taken_.assign(slots.size(), false);
    live_.clear();
    unforeseen_.clear();
    refused_ = false;
    outgrown_ = 0;
    pooled_ = std::ranges::any_of(slots, &PlacedSlot::pool);
    set_active(true);
  }

  std::size_t finish() {
    set_active(false);
    live_.clear();
    const std::size_t unasked = count_unasked();
    if (unasked > 0) deviation().unasked += unasked;
    slots_ = {};
    next_ = 0;
    return unasked;
  }

  Place place(std::size_t bytes) override {
    const auto wanted = static_cast<Bytes>(bytes);
    if (rule_ != Unforeseen::kRefuse) {
      while (next_ < slots_.size() && (slots_[next_].bytes == 0 || taken_[next_])) ++next_;
    }
    const std::size_t found = slot_for(wanted);
    if (found == slots_.size()) {
      if (is_number(wanted)) return {};
      const Place pooled = in_pools(wanted);
      return pooled.address != nullptr ? pooled : unforeseen(wanted);
    }
    if (found == next_) ++next_;
    taken_[found] = true;
    live_.push_back(slots_[found]);
    return {slots_[found].address, &delete_placed};
  }

  void asked_for_nothing() override {
    if (rule_ != Unforeseen::kRefuse) return;
    if (next_ == slots_.size() || slots_[next_].bytes != 0) throw_other(0);
    ++next_;
  }

  void forwarded(const void* address, std::size_t bytes) override {
    if (is_number(static_cast<Bytes>(bytes))) return;
    forwarded_.push_back({static_cast<Bytes>(bytes), const_cast<void*>(address)});
    beside_ -= charged(static_cast<Bytes>(bytes));
  }

  bool freed(const void* address) override {
    if (forget(forwarded_, address)) return false;
    return forget(live_, address).has_value();
  }

  const std::vector<Deviation>& deviations() const { return deviations_; }
  const std::vector<Bytes>& unforeseen() const { return unforeseen_; }
  bool refused() const { return refused_; }
  Bytes outgrown() const { return outgrown_; }

  Bytes live_bytes() const override {
    Bytes sum = 0;
    if (!active()) return sum;
    // Small ones are counted nowhere: see is_number().
    for (const PlacedSlot& block : live_) sum += block.bytes > kNumberBytes ? block.bytes : 0;
    return sum;
  }

  void outgrow(Bytes bytes) override {
    outgrown_ = bytes;
    refused_ = true;
  }

 private:
  std::size_t count_unasked() const {
    std::size_t count = 0;
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      count += slots_[k].bytes > 0 && !taken_[k] && !slots_[k].pool;
    }
    return count;
  }

  // A Python number in a tensor's place, which autograd's graph holds as it is, past the hooks by which
  // an island holds tensors. It is no memory of the step.
  bool is_number(Bytes bytes) const {
    return pooled_ && device().is_cpu() && bytes <= kNumberBytes;
  }

  // The lowest gap of a pool that is large enough; no address: there is none.
  Place in_pools(Bytes bytes) {
    if (!pooled_) return {};
    std::ranges::sort(live_, {}, &PlacedSlot::address);
    for (const PlacedSlot& pool : slots_) {
      if (!pool.pool) continue;
      if (char* place = gap_in(pool, bytes)) {
        live_.push_back({.bytes = bytes, .address = place});
        return {place, &delete_placed};
      }
    }
    return {};
  }

  // What is live is in order of addresses.
  char* gap_in(const PlacedSlot& pool, Bytes bytes) const {
    const auto unit = static_cast<Bytes>(device().is_cpu() ? 64 : 512);
    const auto rounded = [unit](Bytes size) { return (size + unit - 1) / unit * unit; };
    auto* begin = static_cast<char*>(pool.address);
    for (const PlacedSlot& block : live_) {
      auto* other = static_cast<char*>(block.address);
      if (other + block.bytes <= begin) continue;
      if (begin + rounded(bytes) <= other) break;
      begin = other + rounded(block.bytes);
    }
    return begin + rounded(bytes) <= end(pool) ? begin : nullptr;
  }

  // The next slot, or another one of this size that is still to be asked for, or a larger one that
  // takes less; none: their number.
  std::size_t slot_for(Bytes wanted) const {
    const auto free = [&](std::size_t k) { return !taken_[k] && !occupied(slots_[k]); };
    const auto is_for = [&](std::size_t k) {
      if (slots_[k].pool) return false;
      return slots_[k].at_most ? wanted <= slots_[k].bytes : wanted == slots_[k].bytes;
    };
    if (next_ < slots_.size() && is_for(next_) && free(next_)) return next_;
    if (rule_ == Unforeseen::kRefuse) return slots_.size();
    std::size_t larger = slots_.size();
    for (std::size_t k = 0; k < slots_.size(); ++k) {
      if (slots_[k].in_turn || !is_for(k) || !free(k)) continue;
      if (slots_[k].bytes == wanted) return k;
      if (larger == slots_.size()) larger = k;
    }
    return larger;
  }

  // Frees a block that was live; what it was, or nothing.
  std::optional<PlacedSlot> forget(std::vector<PlacedSlot>& blocks, const void* address) {
    const auto found = std::find_if(blocks.rbegin(), blocks.rend(),
                                    [&](const PlacedSlot& s) { return s.address == address; });
    if (found == blocks.rend()) return std::nullopt;
    const PlacedSlot block = std::exchange(*found, blocks.back());
    blocks.pop_back();
    if (&blocks == &forwarded_ && device().is_cpu()) beside_ += charged(block.bytes);
    return block;
  }

  // What a request to torch's own allocator takes from the device. The caching one gives whole pages,
  // and keeps them: what is freed counts until the scope ends.
  Bytes charged(Bytes bytes) const {
    const Bytes page = device().is_cpu() ? 64 : Bytes{2} << 20;
    return (bytes + page - 1) / page * page;
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
    if (rule_ == Unforeseen::kRefuse) throw_other(bytes);
    unforeseen_.push_back(bytes);
    void* address = reserve_->take(bytes);
    if (address == nullptr && charged(bytes) > beside_) throw_full(bytes);
    Deviation& where = deviation();
    ++where.unforeseen;
    where.unforeseen_bytes += bytes;
    return {address, address == nullptr ? nullptr : &Reserve::release};
  }

  [[noreturn]] void throw_full(Bytes bytes) {
    refused_ = true;
    refuse("regen: " + std::string(label_) + " asks for " + format_bytes(bytes) +
           " that its recording did not foresee; the reserve of " +
           format_bytes(reserve_->bytes()) + " has no room for it (" +
           format_count(reserve_->live_blocks(), "block") + " of " +
           format_bytes(reserve_->live_bytes()) + " in use), and the budget leaves " +
           format_bytes(std::max<Bytes>(0, beside_)) + " beside the plan");
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
  Unforeseen rule_ = Unforeseen::kReserve;
  std::size_t next_ = 0;
  std::vector<bool> taken_;        // slots of this call
  std::vector<PlacedSlot> live_;   // of this call, not freed yet
  std::vector<Bytes> unforeseen_;  // requests of this call
  bool refused_ = false;
  Bytes outgrown_ = 0;
  bool pooled_ = false;                // this call has pools
  Bytes beside_ = 0;                   // still to be had from torch's allocator
  std::vector<PlacedSlot> forwarded_;  // what it gave, not freed yet
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

  Bytes live_bytes() const override {
    Bytes sum = 0;
    if (!active()) return sum;
    for (const RecordedAllocation& made : recorded_) {
      const bool alive = made.death == RecordedAllocation::kAlive;
      if (alive && made.bytes > kNumberBytes) sum += made.bytes;
    }
    return sum;
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

Result<PlacementScope> PlacementScope::enter(c10::Device device, Reserve& reserve, Bytes beside) {
  auto hook = std::make_unique<PlacementHook>(device, reserve, beside);
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
const std::vector<Bytes>& PlacementScope::unforeseen() const {
  return hook_->unforeseen();
}
bool PlacementScope::refused() const {
  return hook_->refused();
}
Bytes PlacementScope::outgrown() const {
  return hook_->outgrown();
}

Bytes live_bytes_of_call() {
  return thread_hook == nullptr ? 0 : thread_hook->live_bytes();
}
void outgrow(Bytes bytes) {
  if (thread_hook != nullptr) thread_hook->outgrow(bytes);
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
