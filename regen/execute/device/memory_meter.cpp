#include "regen/execute/device/memory_meter.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>

#include "regen/execute/device/cuda_backend.h"
#include "regen/execute/placement/allocation_hook.h"

namespace regen::execute {
namespace {

constexpr std::uint8_t kPriority = 200;

// Current and highest sum of bytes, from any thread.
class Counter {
 public:
  void add(Bytes difference) {
    const Bytes now = current_.fetch_add(difference, std::memory_order_relaxed) + difference;
    Bytes peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }
  void reset_peak() { peak_.store(current()); }
  Bytes current() const { return current_.load(); }
  Bytes peak() const { return peak_.load(); }

 private:
  std::atomic<Bytes> current_{0};
  std::atomic<Bytes> peak_{0};
};

Counter counter;

// Sizes by address: a deleter knows only the address. Several tables, so that threads seldom meet.
class Sizes {
 public:
  void insert(void* address, Bytes bytes) {
    Table& table = table_of(address);
    const std::lock_guard lock(table.mutex);
    table.sizes[address] = bytes;
  }
  // 0 for an address that is not there.
  Bytes remove(void* address) {
    Table& table = table_of(address);
    const std::lock_guard lock(table.mutex);
    const auto node = table.sizes.extract(address);
    return node ? node.mapped() : 0;
  }

 private:
  struct Table {
    std::mutex mutex;
    std::unordered_map<void*, Bytes> sizes;
  };
  Table& table_of(void* address) {
    return tables_[(reinterpret_cast<std::uintptr_t>(address) >> 6) % tables_.size()];
  }
  std::array<Table, 16> tables_;
};

// Never destroyed: memory that it counted may be freed at any later time.
class MeterAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    c10::DataPtr data = previous()->allocate(bytes);
    if (data.get() == nullptr) return data;
    sizes_.insert(data.get(), static_cast<Bytes>(bytes));
    counter.add(static_cast<Bytes>(bytes));
    if (!data.compare_exchange_deleter(previous()->raw_deleter(), &delete_counted)) {
      counter.add(-sizes_.remove(data.get()));  // of an unknown kind: its end would not be seen
    }
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_counted; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  Status install();
  Status remove();

 private:
  static void delete_counted(void* address);
  c10::Allocator* previous() const { return previous_.load(std::memory_order_acquire); }

  std::atomic<c10::Allocator*> previous_{nullptr};
  std::mutex mutex_;
  Sizes sizes_;
};

MeterAllocator& meter() {
  static auto* allocator = new MeterAllocator;
  return *allocator;
}

void MeterAllocator::delete_counted(void* address) {
  counter.add(-meter().sizes_.remove(address));
  meter().previous()->raw_deleter()(address);
}

Status MeterAllocator::install() {
  const std::lock_guard lock(mutex_);
  if (c10::GetCPUAllocator() == this) return {};
  if (cpu_hook_installed())
    return bad_input("memory meter: a placement or recording scope is entered; install it before");
  if (c10::GetCPUAllocator()->raw_deleter() == nullptr)
    return bad_input("memory meter: the CPU allocator in use does not say how it frees");
  previous_.store(c10::GetCPUAllocator(), std::memory_order_release);
  c10::SetCPUAllocator(this, kPriority);
  return {};
}

Status MeterAllocator::remove() {
  const std::lock_guard lock(mutex_);
  if (cpu_hook_installed())
    return bad_input("memory meter: a placement or recording scope is entered; remove it after");
  if (c10::GetCPUAllocator() == this) c10::SetCPUAllocator(previous(), kPriority);
  return {};
}

}  // namespace

Status install_memory_meter() {
  return meter().install();
}
Status remove_memory_meter() {
  return meter().remove();
}

Result<MemoryUse> memory_use(c10::Device device) {
  if (!device.is_cpu()) return cuda_memory_use(device);
  return MemoryUse{.allocated = counter.current(),
                   .allocated_peak = counter.peak(),
                   .reserved = counter.current(),
                   .reserved_peak = counter.peak()};
}

Status reset_memory_peak(c10::Device device) {
  if (!device.is_cpu()) return reset_cuda_memory_peak(device);
  counter.reset_peak();
  return {};
}

Status release_cached_memory(c10::Device device) {
  if (!device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
  return {};
}

void count_arena_bytes(Bytes difference) {
  counter.add(difference);
}

}  // namespace regen::execute
