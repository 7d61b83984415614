// The allocator that stands in front of torch's on the CPU while a scope is entered somewhere.
#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "regen/execute/placement/allocation_hook.h"
#include "regen/execute/placement/reserve.h"

namespace regen::execute {
namespace {

constexpr std::uint8_t kPriority = 200;  // above whatever else registers itself

// One for the process and never destroyed: storages remember the allocator that made them and
// come back to it to be resized, long after the scope. Then, as for threads without a hook,
// everything is passed on.
class HookedCpuAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &delete_any; }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return data.get() == data.get_context();
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  Status install();
  void remove();
  bool installed();

 private:
  static void delete_any(void* address);
  static void delete_recorded(void* address);

  c10::Allocator* previous() const { return previous_.load(std::memory_order_acquire); }

  std::atomic<c10::Allocator*> previous_{nullptr};
  std::mutex mutex_;
  int scopes_ = 0;
};

HookedCpuAllocator& hooked() {
  static auto* allocator = new HookedCpuAllocator;
  return *allocator;
}

c10::DataPtr HookedCpuAllocator::allocate(std::size_t bytes) {
  AllocationHook* hook = active_hook(c10::kCPU);
  if (hook == nullptr) return previous()->allocate(bytes);
  if (bytes == 0) {
    hook->asked_for_nothing();
    return {nullptr, c10::kCPU};
  }
  const auto place = hook->place(bytes);
  if (place.address != nullptr) return {place.address, place.address, place.deleter, c10::kCPU};
  c10::DataPtr data = previous()->allocate(bytes);
  hook->forwarded(data.get(), bytes);
  if (!hook->sees_ends()) return data;
  // Fails for an allocator with deleters of its own kind; then the end is not seen.
  static_cast<void>(data.compare_exchange_deleter(previous()->raw_deleter(), &delete_recorded));
  return data;
}

// Of raw_deallocate(), which gets no DataPtr but the bare address, whosever it is.
void HookedCpuAllocator::delete_any(void* address) {
  if (thread_hook != nullptr && thread_hook->freed(address)) return;
  if (Reserve::give(address)) return;
  if (const auto deleter = hooked().previous()->raw_deleter()) deleter(address);
}

void HookedCpuAllocator::delete_recorded(void* address) {
  if (thread_hook != nullptr) thread_hook->freed(address);
  hooked().previous()->raw_deleter()(address);
}

Status HookedCpuAllocator::install() {
  const std::lock_guard lock(mutex_);
  if (scopes_ == 0 && c10::GetCPUAllocator() != this) {
    previous_.store(c10::GetCPUAllocator(), std::memory_order_release);
    c10::SetCPUAllocator(this, kPriority);
  }
  if (c10::GetCPUAllocator() != this)
    return bad_input("placement on cpu: another allocator with a higher priority is in the way");
  ++scopes_;
  return {};
}

void HookedCpuAllocator::remove() {
  const std::lock_guard lock(mutex_);
  if (--scopes_ == 0 && c10::GetCPUAllocator() == this) c10::SetCPUAllocator(previous(), kPriority);
}

bool HookedCpuAllocator::installed() {
  const std::lock_guard lock(mutex_);
  return scopes_ > 0;
}

}  // namespace

Status install_cpu_hook() {
  return hooked().install();
}
void remove_cpu_hook() {
  hooked().remove();
}
bool cpu_hook_installed() {
  return hooked().installed();
}

}  // namespace regen::execute
