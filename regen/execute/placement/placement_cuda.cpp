// The allocator that stands in front of torch's on CUDA while a scope is entered somewhere. All
// but the requests for memory and their ends is passed on; torch 2.11 to 2.13 are known.
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "regen/execute/device/cuda_backend.h"
#include "regen/execute/placement/allocation_hook.h"
#include "regen/execute/placement/reserve.h"

namespace regen::execute {
namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

#define REGEN_TORCH_2_13 (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)

// Placed addresses that were asked for without a DataPtr (by Thrust, for one), so that their end
// says nothing but the address. They may outlive the operator, not the scope.
thread_local std::vector<void*> raw_placed;

bool forget_raw(void* address) {
  const auto found = std::find(raw_placed.begin(), raw_placed.end(), address);
  if (found == raw_placed.end()) return false;
  raw_placed.erase(found);
  return true;
}

void report_freed(void* address) {
  if (thread_hook != nullptr) thread_hook->freed(address);
}

// One for the process and never destroyed: see HookedCpuAllocator.
class HookedCudaAllocator final : public caching::CUDAAllocator {
 public:
  void install();
  void remove();

  // What is decided here.
  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &delete_any; }
  void* raw_alloc(std::size_t bytes) override {
    return raw_alloc_by(bytes, [&] { return previous()->raw_alloc(bytes); });
  }
  void* raw_alloc_with_stream(std::size_t bytes, cudaStream_t stream) override {
    return raw_alloc_by(bytes, [&] { return previous()->raw_alloc_with_stream(bytes, stream); });
  }
  void raw_delete(void* address) override;
  using caching::CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) override;

  // What is passed on.
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    previous()->copy_data(to, from, bytes);
  }
  bool initialized() override { return previous()->initialized(); }
  void emptyCache(c10::MempoolId_t pool) override { previous()->emptyCache(pool); }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return previous()->getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    previous()->resetAccumulatedStats(device);
  }
  void resetPeakStats(c10::DeviceIndex device) override { previous()->resetPeakStats(device); }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return previous()->getMemoryInfo(device);
  }
  void init(int device_count) override { previous()->init(device_count); }
  double getMemoryFraction(c10::DeviceIndex device) override {
    return previous()->getMemoryFraction(device);
  }
  void setMemoryFraction(double fraction, c10::DeviceIndex device) override {
    previous()->setMemoryFraction(fraction, device);
  }
  std::vector<caching::StreamSegmentSize> getExpandableSegmentSizes(
      c10::DeviceIndex device) override {
    return previous()->getExpandableSegmentSizes(device);
  }
  void enable(bool value) override { previous()->enable(value); }
  bool isEnabled() const override { return previous()->isEnabled(); }
  void cacheInfo(c10::DeviceIndex device, std::size_t* largest) override {
    previous()->cacheInfo(device, largest);
  }
  void* getBaseAllocation(void* address, std::size_t* bytes) override {
    return previous()->getBaseAllocation(address, bytes);
  }
  caching::SnapshotInfo snapshot(c10::MempoolId_t pool, bool include_traces) override {
    return previous()->snapshot(pool, include_traces);
  }
  void beginAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    previous()->beginAllocateToPool(device, pool, std::move(filter));
  }
  void endAllocateToPool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    previous()->endAllocateToPool(device, pool);
  }
  void releasePool(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    previous()->releasePool(device, pool);
  }
  int getPoolUseCount(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    return previous()->getPoolUseCount(device, pool);
  }
  void createOrIncrefPool(c10::DeviceIndex device, c10::MempoolId_t pool,
                          std::shared_ptr<CUDAAllocator> allocator) override {
    previous()->createOrIncrefPool(device, pool, std::move(allocator));
  }
  void setUseOnOOM(c10::DeviceIndex device, c10::MempoolId_t pool, bool use) override {
    previous()->setUseOnOOM(device, pool, use);
  }
  void setNoSplit(c10::DeviceIndex device, c10::MempoolId_t pool) override {
    previous()->setNoSplit(device, pool);
  }
  bool checkPoolLiveAllocations(c10::DeviceIndex device, c10::MempoolId_t pool,
                                const std::unordered_set<void*>& expected) override {
    return previous()->checkPoolLiveAllocations(device, pool, expected);
  }
  caching::ShareableHandle shareIpcHandle(void* address) override {
    return previous()->shareIpcHandle(address);
  }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return previous()->getIpcDevPtr(std::move(handle));
  }
  bool isHistoryEnabled() override { return previous()->isHistoryEnabled(); }
  void recordHistory(bool enabled, caching::CreateContextFn context, std::size_t entries,
                     caching::RecordContext when, bool clear,
                     const std::vector<std::string>& skip) override {
    previous()->recordHistory(enabled, context, entries, when, clear, skip);
  }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>>& data) override {
    previous()->recordAnnotation(data);
  }
  void pushCompileContext(std::string& data) override { previous()->pushCompileContext(data); }
  void popCompileContext() override { previous()->popCompileContext(); }
  void setUserMetadata(const std::string& data) override { previous()->setUserMetadata(data); }
  std::string getUserMetadata() override { return previous()->getUserMetadata(); }
  void attachOutOfMemoryObserver(caching::OutOfMemoryObserver observer) override {
    previous()->attachOutOfMemoryObserver(std::move(observer));
  }
  void attachAllocatorTraceTracker(caching::AllocatorTraceTracker tracker) override {
    previous()->attachAllocatorTraceTracker(std::move(tracker));
  }
  void enablePeerAccess(c10::DeviceIndex device, c10::DeviceIndex other) override {
    previous()->enablePeerAccess(device, other);
  }
  cudaError_t memcpyAsync(void* to, int to_device, const void* from, int from_device,
                          std::size_t bytes, cudaStream_t stream, bool peer) override {
    return previous()->memcpyAsync(to, to_device, from, from_device, bytes, stream, peer);
  }
  std::shared_ptr<caching::AllocatorState> getCheckpointState(c10::DeviceIndex device,
                                                              c10::MempoolId_t pool) override {
    return previous()->getCheckpointState(device, pool);
  }
  caching::CheckpointDelta setCheckpointPoolState(
      c10::DeviceIndex device, std::shared_ptr<caching::AllocatorState> state) override {
    return previous()->setCheckpointPoolState(device, std::move(state));
  }
  std::string name() override { return previous()->name(); }
#if REGEN_TORCH_2_13
  void attachOomRejectionObserver(caching::OomRejectionObserver observer) override {
    previous()->attachOomRejectionObserver(std::move(observer));
  }
  void markCaptureBegin(c10::DeviceIndex device) override {
    previous()->markCaptureBegin(device);
  }
  void markCaptureEnd(c10::DeviceIndex device) override {
    previous()->markCaptureEnd(device);
  }
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void* address) override {
    return previous()->getContextForPointer(address);
  }
  c10::DataPtr allocateWithAddress(std::size_t bytes, void* address) override {
    return previous()->allocateWithAddress(bytes, address);
  }
#endif

 private:
  static void delete_any(void* address);
  static void delete_recorded(void* address);

  template <typename Forward>
  void* raw_alloc_by(std::size_t bytes, const Forward& forward);

  caching::CUDAAllocator* previous() const {
    return previous_.load(std::memory_order_acquire);
  }

  std::atomic<caching::CUDAAllocator*> previous_{nullptr};
  std::mutex mutex_;
  int scopes_ = 0;
};

HookedCudaAllocator& hooked() {
  static auto* allocator = new HookedCudaAllocator;
  return *allocator;
}

c10::DataPtr HookedCudaAllocator::allocate(std::size_t bytes) {
  AllocationHook* hook = active_hook(c10::kCUDA);
  if (hook == nullptr) return previous()->allocate(bytes);
  if (bytes == 0) {
    hook->asked_for_nothing();
    return {nullptr, hook->device()};
  }
  const auto place = hook->place(bytes);
  if (place.address != nullptr)
    return {place.address, place.address, place.deleter, hook->device()};
  c10::DataPtr data = previous()->allocate(bytes);
  hook->forwarded(data.get(), bytes);
  if (!hook->sees_ends()) return data;
  // Fails for an allocator with deleters of its own kind; then the end is not seen.
  static_cast<void>(data.compare_exchange_deleter(previous()->raw_deleter(), &delete_recorded));
  return data;
}

template <typename Forward>
void* HookedCudaAllocator::raw_alloc_by(std::size_t bytes, const Forward& forward) {
  AllocationHook* hook = active_hook(c10::kCUDA);
  if (hook == nullptr) return forward();
  if (bytes == 0) return nullptr;
  const auto place = hook->place(bytes);
  if (place.address != nullptr) {
    if (place.deleter == &delete_placed) raw_placed.push_back(place.address);
    return place.address;
  }
  void* address = forward();
  hook->forwarded(address, bytes);
  return address;
}

void HookedCudaAllocator::raw_delete(void* address) {
  report_freed(address);
  if (forget_raw(address) || Reserve::give(address)) return;
  previous()->raw_delete(address);
}

void HookedCudaAllocator::delete_any(void* address) {
  hooked().raw_delete(address);
}

void HookedCudaAllocator::delete_recorded(void* address) {
  report_freed(address);
  hooked().previous()->raw_deleter()(address);
}

void HookedCudaAllocator::recordStream(const c10::DataPtr& data, c10::cuda::CUDAStream stream) {
  const auto deleter = data.get_deleter();
  // Placed memory is given back by the plan, which knows the queues.
  if (deleter == &delete_placed || deleter == &Reserve::release) return;
  if (deleter != &delete_recorded) return previous()->recordStream(data, stream);
  // Torch knows its own memory by the deleter: show it the original one.
  c10::DataPtr original(data.get(), data.get_context(), previous()->raw_deleter(), data.device());
  previous()->recordStream(original, stream);
  original.release_context();
}

void HookedCudaAllocator::install() {
  const std::lock_guard lock(mutex_);
  if (scopes_++ > 0) return;
  previous_.store(caching::get(), std::memory_order_release);
  caching::allocator.store(this);
}

void HookedCudaAllocator::remove() {
  const std::lock_guard lock(mutex_);
  raw_placed.clear();
  if (--scopes_ == 0) caching::allocator.store(previous());
}

}  // namespace

Status install_cuda_hook(c10::Device device) {
  if (!device.has_index())
    return bad_input("placement on cuda: the device needs its number, such as cuda:0");
  if (!caching::get()->initialized())
    return bad_input("placement on " + device.str() + ": open_device() it first");
  hooked().install();
  return {};
}

void remove_cuda_hook() {
  hooked().remove();
}

}  // namespace regen::execute
