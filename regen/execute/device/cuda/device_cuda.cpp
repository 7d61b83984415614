// A CUDA device: the copy queues are two streams of high priority, so that a copy starts as soon as
// a copy engine is free. The compute queue is the caller's current stream. Nothing can be captured
// from the default stream: a caller that captures uses a stream of the device's own (own_stream()).
#include <ATen/Context.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "regen/execute/device/cpu/work_queue.h"
#include "regen/execute/device/cpu/worker.h"
#include "regen/execute/device/cuda/event_ring_cuda.h"
#include "regen/execute/device/cuda/pages_cuda.h"
#include "regen/execute/device/cuda_backend.h"
#include "regen/execute/device/quietly.h"

namespace regen::execute {
namespace {

constexpr double kCyclesPerSecond = 2e9;  // roughly; only for how long a queue is held up
constexpr Bytes kAlignment = 512;         // as torch's caching allocator rounds
// To be woken by the driver takes up to a tenth of a millisecond, as long as many operators do. So
// a waiting thread polls without a pause from this long before the expected end until this long
// after it, and sleeps for this long between two polls at other times.
constexpr double kNearSeconds = 200e-6;
constexpr double kLookSeconds = 600e-6;
constexpr double kNapSeconds = 100e-6;

void free_device(void* data, Bytes /*bytes*/) {
  static_cast<void>(cudaFree(data));
}
void free_host(void* data, Bytes /*bytes*/) {
  static_cast<void>(cudaFreeHost(data));
}

std::string take_error(cudaError_t status) {
  static_cast<void>(cudaGetLastError());  // it is reported here, not by the next check
  return cudaGetErrorString(status);
}

Status check_size(Bytes bytes, const std::string& what) {
  if (bytes >= 0 && bytes <= kMaxBytes) return {};
  return bad_input(what + " of " + std::to_string(bytes) + " bytes: not a size");
}

// One per device for the whole process, never ended: at the end of the process CUDA may be gone
// before a thread could be joined.
struct DeviceWorker {
  Worker worker;
  std::atomic<bool> chosen = false;  // its thread remembers choices
};

DeviceWorker& worker_of(c10::DeviceIndex index) {
  static std::mutex mutex;
  static auto* workers = new std::map<c10::DeviceIndex, DeviceWorker*>;
  const std::lock_guard lock(mutex);
  DeviceWorker*& worker = (*workers)[index];
  if (worker == nullptr) worker = new DeviceWorker;
  return *worker;
}

std::string device_name(c10::DeviceIndex index) {
  cudaDeviceProp properties{};
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
  return properties.name;
}

class CudaGraph final : public CapturedWork {
 public:
  CudaGraph(cudaGraphExec_t graph, c10::DeviceIndex device, Bytes bytes)
      : graph_(graph), device_(device), bytes_(bytes) {}
  ~CudaGraph() override { static_cast<void>(cudaGraphExecDestroy(graph_)); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch() override {
    C10_CUDA_CHECK(cudaGraphLaunch(graph_, c10::cuda::getCurrentCUDAStream(device_).stream()));
  }
  Bytes bytes() const override { return bytes_; }

 private:
  const cudaGraphExec_t graph_;
  const c10::DeviceIndex device_;
  const Bytes bytes_;
};

// What was captured, ready to be launched; null if CUDA refuses it. The graph goes.
cudaGraphExec_t make_executable(cudaGraph_t graph) {
  if (graph == nullptr) return nullptr;
  cudaGraphExec_t executable = nullptr;
  if (cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) executable = nullptr;
  static_cast<void>(cudaGraphDestroy(graph));
  return executable;
}

class CudaDevice final : public ExecutionDevice {
 public:
  explicit CudaDevice(c10::DeviceIndex index)
      : index_(index),
        name_(device_name(index)),
        to_host_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index)),
        to_device_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, index)),
        compute_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index)) {}

  ~CudaDevice() override {
    for (cudaEvent_t event : timed_) static_cast<void>(cudaEventDestroy(event));
    if (turn_ != nullptr) static_cast<void>(cudaEventDestroy(turn_));
  }

  c10::Device torch_device() const override { return {c10::kCUDA, index_}; }
  const std::string& name() const override { return name_; }
  Bytes alignment() const override { return kAlignment; }

  Result<DeviceMemory> memory() override {
    const c10::cuda::CUDAGuard guard(index_);
    std::size_t free = 0;
    std::size_t total = 0;
    const cudaError_t status = cudaMemGetInfo(&free, &total);
    if (status != cudaSuccess) return missing("memory of " + name_ + ": " + take_error(status));
    return DeviceMemory{.total = static_cast<Bytes>(total), .free = static_cast<Bytes>(free)};
  }

  Result<MemoryBlock> allocate_arena(Bytes bytes, ArenaKind kind) override {
    REGEN_TRY(check_size(bytes, "arena"));
    if (kind == ArenaKind::kFixed) {
      REGEN_ASSIGN(void* data, allocate_fixed(bytes));
      return MemoryBlock(data, round_up(bytes), free_device);
    }
    auto paged = allocate_paged_cuda(index_, std::max<Bytes>(bytes, 1));
    if (paged.ok() || paged.error().code != ErrorCode::kMissing) return paged;
    REGEN_ASSIGN(void* data, allocate_fixed(bytes));
    return fixed_cuda_block(data, round_up(bytes), paged.error().message);
  }

  Result<MemoryBlock> allocate_host(Bytes bytes) override {
    REGEN_TRY(check_size(bytes, "pinned host memory"));
    if (bytes == 0) return MemoryBlock();
    const c10::cuda::CUDAGuard guard(index_);
    void* data = nullptr;
    const cudaError_t status =
        cudaHostAlloc(&data, static_cast<std::size_t>(bytes), cudaHostAllocPortable);
    if (status != cudaSuccess) {
      return limit_reached("pinned host memory of " + format_bytes(bytes) + ": CUDA refuses it (" +
                           take_error(status) + "), expected a smaller host budget");
    }
    return MemoryBlock(data, bytes, free_host);
  }

  void copy(Queue queue, void* to, const void* from, Bytes bytes) override {
    if (bytes == 0) return;
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), copy_kind(queue),
                                   stream(queue)));
  }

  Event record(Queue queue) override {
    const c10::cuda::CUDAGuard guard(index_);
    const std::lock_guard lock(mutex_);
    return {.queue = queue, .ticket = ring(queue).record(stream(queue))};
  }

  void wait(Queue waiter, const Event& event) override {
    const c10::cuda::CUDAGuard guard(index_);
    const std::lock_guard lock(mutex_);
    if (cudaEvent_t point = find(event))
      C10_CUDA_CHECK(cudaStreamWaitEvent(stream(waiter), point, 0));
  }

  bool done(const Event& event) override {
    const c10::cuda::CUDAGuard guard(index_);
    const std::lock_guard lock(mutex_);
    cudaEvent_t point = find(event);
    return point == nullptr || cuda_event_done(point);
  }

  bool await(const Event& event, double expected_seconds, const Gate* gate) override {
    const c10::cuda::CUDAGuard guard(index_);
    cudaEvent_t point = nullptr;
    {
      const std::lock_guard lock(mutex_);
      point = find(event);
    }
    const double begin = now_seconds();
    while (point != nullptr && !cuda_event_done(point)) {
      if (gate != nullptr && !gate->open()) return false;
      const double left = begin + expected_seconds - now_seconds();
      if (left > kNearSeconds || left < -kLookSeconds) {
        const double far = left > 0 ? left - kNearSeconds : kNapSeconds;
        std::this_thread::sleep_for(std::chrono::duration<double>(std::min(far, kNapSeconds)));
      }
    }
    return true;
  }

  void finish() override {
    const c10::cuda::CUDAGuard guard(index_);
    C10_CUDA_CHECK(cudaDeviceSynchronize());
  }

  void synchronize() override {
    const c10::cuda::CUDAGuard guard(index_);
    for (Queue queue : {Queue::kCompute, Queue::kToHost, Queue::kToDevice})
      C10_CUDA_CHECK(cudaStreamSynchronize(stream(queue)));
  }

  void hold_compute(double seconds) override {
    const c10::cuda::CUDAGuard guard(index_);
    at::cuda::sleep(static_cast<std::int64_t>(seconds * kCyclesPerSecond));
  }

  Event record_timed(Queue queue) override {
    const c10::cuda::CUDAGuard guard(index_);
    const std::lock_guard lock(mutex_);
    if (timed_used_ == timed_.size()) {
      cudaEvent_t event = nullptr;
      C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
      timed_.push_back(event);
    }
    C10_CUDA_CHECK(cudaEventRecord(timed_[timed_used_], stream(queue)));
    return {.queue = queue, .mark = ++timed_used_};
  }

  double seconds_between(const Event& begin, const Event& end) override {
    const c10::cuda::CUDAGuard guard(index_);
    const std::lock_guard lock(mutex_);
    float milliseconds = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, timed(begin), timed(end)));
    return static_cast<double>(milliseconds) / 1e3;
  }

  void forget_timed() override {
    const std::lock_guard lock(mutex_);
    timed_used_ = 0;
  }

  void run(const std::function<void()>& work) override { run_on(worker_of(index_).worker, work); }

  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) override {
    const c10::cuda::CUDAGuard guard(index_);
    const cudaStream_t on = stream(Queue::kCompute);
    const Bytes before = free_bytes();
    // Other threads may go on allocating and asking for events: nothing of theirs is captured.
    if (cudaStreamBeginCapture(on, cudaStreamCaptureModeRelaxed) != cudaSuccess) return refuse();
    bool complete = true;
    try {
      work();
    } catch (const std::exception&) {
      complete = false;  // some operators cannot be captured; they are called instead
    }
    cudaGraph_t graph = nullptr;
    complete &= cudaStreamEndCapture(on, &graph) == cudaSuccess;
    cudaGraphExec_t executable = make_executable(graph);
    if (executable == nullptr) return refuse();
    auto captured =
        std::make_unique<CudaGraph>(executable, index_, std::max<Bytes>(0, before - free_bytes()));
    return complete ? std::move(captured) : refuse();
  }

  std::unique_ptr<StreamScope> own_stream() override {
    const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(index_);
    if (caller != c10::cuda::getDefaultCUDAStream(index_)) return nullptr;
    return std::make_unique<OwnStream>(*this, caller);
  }

  // A thread that ends gives its handles of cuBLAS and cuDNN back to torch, which hands them to the
  // next: neither this nor a new worker makes libraries take more memory each time.
  void run_aside(const std::function<void()>& work) override {
    Worker aside;
    run_on(aside, work);
  }

  void note_choices() override { worker_of(index_).chosen = true; }

  void forget_choices() override {
    DeviceWorker& own = worker_of(index_);
    if (own.chosen.exchange(false)) own.worker.renew();
  }

 private:
  static Bytes round_up(Bytes bytes) {
    return (std::max<Bytes>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }

  Result<void*> allocate_fixed(Bytes bytes) {
    const c10::cuda::CUDAGuard guard(index_);
    const auto size = static_cast<std::size_t>(round_up(bytes));
    void* data = nullptr;
    cudaError_t status = cudaMalloc(&data, size);
    if (status == cudaErrorMemoryAllocation) {
      take_error(status);
      // What torch keeps for later is in the way.
      c10::cuda::CUDACachingAllocator::emptyCache();
      status = cudaMalloc(&data, size);
    }
    if (status != cudaSuccess) return refused("arena", round_up(bytes), status);
    return data;
  }

  // On the caller's stream.
  void run_on(Worker& worker, const std::function<void()>& work) const {
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(index_);
    worker.run([&] {
      const c10::cuda::CUDAStreamGuard guard(stream);
      work();
    });
  }

  class OwnStream final : public StreamScope {
   public:
    OwnStream(CudaDevice& device, c10::cuda::CUDAStream caller)
        : device_(device), caller_(caller), guard_(device.compute_) {
      device_.follow(device_.compute_, caller_);
    }
    ~OwnStream() override {
      quietly(Lost::kPrint, [&] { device_.follow(caller_, device_.compute_); });
    }

   private:
    CudaDevice& device_;
    const c10::cuda::CUDAStream caller_;
    const c10::cuda::CUDAStreamGuard guard_;
  };

  // What `later` gets from now on comes after what `earlier` has.
  void follow(c10::cuda::CUDAStream later, c10::cuda::CUDAStream earlier) {
    const c10::cuda::CUDAGuard guard(index_);
    const std::lock_guard lock(mutex_);
    if (turn_ == nullptr) C10_CUDA_CHECK(cudaEventCreateWithFlags(&turn_, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(turn_, earlier.stream()));
    C10_CUDA_CHECK(cudaStreamWaitEvent(later.stream(), turn_, 0));  // as it was recorded now
  }

  static std::unique_ptr<CapturedWork> refuse() {
    static_cast<void>(cudaGetLastError());  // it is answered, not reported by the next check
    return nullptr;
  }

  Bytes free_bytes() {
    const auto now = memory();
    return now.ok() ? now->free : 0;
  }

  static cudaMemcpyKind copy_kind(Queue queue) {
    if (queue == Queue::kToHost) return cudaMemcpyDeviceToHost;
    if (queue == Queue::kToDevice) return cudaMemcpyHostToDevice;
    return cudaMemcpyDeviceToDevice;
  }

  cudaStream_t stream(Queue queue) const {
    if (queue == Queue::kToHost) return to_host_.stream();
    if (queue == Queue::kToDevice) return to_device_.stream();
    return c10::cuda::getCurrentCUDAStream(index_).stream();
  }

  EventRing& ring(Queue queue) { return rings_[static_cast<std::size_t>(queue)]; }

  // Null for what is known to be done.
  cudaEvent_t find(const Event& event) {
    if (event.mark > 0) return timed(event);
    return ring(event.queue).find(event.ticket);
  }

  cudaEvent_t timed(const Event& event) const {
    TORCH_CHECK(event.mark > 0 && event.mark <= timed_used_,
                "regen: the time of an event that has none, or was forgotten, was asked for");
    return timed_[event.mark - 1];
  }

  Error refused(const std::string& what, Bytes bytes, cudaError_t status) {
    std::string text = what + " of " + format_bytes(bytes) + " on " + name_ +
                       ": CUDA refuses it (" + take_error(status) + ")";
    if (const auto now = memory(); now.ok())
      text += "; " + format_bytes(now->free) + " of " + format_bytes(now->total) + " are free";
    return limit_reached(text + ", expected a smaller budget or more free memory");
  }

  const c10::DeviceIndex index_;
  const std::string name_;
  const c10::cuda::CUDAStream to_host_;
  const c10::cuda::CUDAStream to_device_;
  const c10::cuda::CUDAStream compute_;
  std::mutex mutex_;  // of the events
  std::array<EventRing, kQueues> rings_;
  std::vector<cudaEvent_t> timed_;
  std::uint32_t timed_used_ = 0;
  cudaEvent_t turn_ = nullptr;  // from one stream to another
};

}  // namespace

Result<std::shared_ptr<ExecutionDevice>> open_cuda_device(int index) {
  try {
    const int count = c10::cuda::device_count();
    if (count == 0) return missing("CUDA device: torch sees none on this machine; use cpu");
    if (index >= count)
      return bad_input("device cuda:" + std::to_string(index) + ": this machine has " +
                       format_count(static_cast<std::size_t>(count), "CUDA device") +
                       ", expected cuda:0 to cuda:" + std::to_string(count - 1));
    at::globalContext().lazyInitDevice(c10::kCUDA);
    return std::shared_ptr<ExecutionDevice>(
        std::make_shared<CudaDevice>(static_cast<c10::DeviceIndex>(index)));
  } catch (const c10::Error& error) {
    return missing("CUDA device: " + std::string(error.what_without_backtrace()));
  }
}

}  // namespace regen::execute
