// Where a step runs: three queues of work, memory from the driver, and events that order the
// queues. Torch has no queues on the CPU, so this is regen's own small interface; the CPU device
// has real threads behind its copy queues, so that overlap and ordering are the same there.
//
//   queue    work that runs in the order in which it was enqueued: kernels, copies to the host,
//            copies to the device. Queues do not depend on each other.
//   event    a point in a queue: "everything enqueued up to here". wait() makes another queue
//            wait for it; nothing else orders two queues.
//
// An executor needs three such waits around copies (the races that tests/execute provokes):
//   1. an offload waits for the kernel that made the tensor;
//   2. the next writer of an offloaded tensor's memory waits for the offload;
//   3. a fetch waits for the last kernel (or copy) that used the memory it writes to.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "regen/base/preemption_gate.h"
#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/execute/device/memory_block.h"

namespace regen::execute {

enum class Queue : std::uint8_t { kCompute, kToHost, kToDevice };
inline constexpr std::size_t kQueues = 3;

std::string_view to_string(Queue queue);

// A default event is a point before all work: done, and nothing to wait for.
struct Event {
  Queue queue = Queue::kCompute;
  std::uint32_t mark = 0;  // of a timed event: the place of its time, counted from 1
  std::uint64_t ticket = 0;

  bool operator==(const Event&) const = default;
};

// What an arena's pages may do: stay until the arena goes, or leave while the address stays.
enum class ArenaKind : std::uint8_t { kFixed, kReleasable };

class StreamScope {
 public:
  virtual ~StreamScope();
};

// Work of the compute queue, captured to be enqueued again as a whole.
class CapturedWork {
 public:
  virtual ~CapturedWork();
  // Enqueues it, inside run().
  virtual void launch() = 0;
  // That it takes of the device.
  virtual Bytes bytes() const = 0;
};

struct DeviceMemory {
  Bytes total = 0;
  Bytes free = 0;  // what an allocation could get now, other processes considered
};

// Every method may be called from any thread; calls that enqueue are ordered by the caller.
// An error inside a queue is thrown by the next call (c10::Error with CUDA's text, or what the
// work of a CPU queue has thrown).
class ExecutionDevice {
 public:
  virtual ~ExecutionDevice();

  virtual c10::Device torch_device() const = 0;
  // "NVIDIA H200", or the CPU's model name: what measured costs are valid for.
  virtual const std::string& name() const = 0;
  // Of the addresses that operators get, a power of two: 64 on the CPU, 512 on CUDA.
  virtual Bytes alignment() const = 0;
  // As the driver sees it.
  virtual Result<DeviceMemory> memory() = 0;

  // `bytes` rounded up to the alignment, from the driver itself and not from torch's cache. A
  // releasable arena of a CUDA device is rounded up to its pages (2 MiB): it has every byte that it
  // takes. Where memory cannot leave its address (an old driver), releasing it is refused.
  virtual Result<MemoryBlock> allocate_arena(Bytes bytes, ArenaKind kind = ArenaKind::kFixed) = 0;
  // Host memory of exactly this size that the copy queues reach at full speed (pinned).
  virtual Result<MemoryBlock> allocate_host(Bytes bytes) = 0;

  // Enqueues a copy; returns at once for the two copy queues. kCompute copies within the device.
  virtual void copy(Queue queue, void* to, const void* from, Bytes bytes) = 0;
  virtual Event record(Queue queue) = 0;
  // Work that `waiter` is given from now on starts after the event. A CPU's compute queue is the
  // caller itself, which is held up here.
  virtual void wait(Queue waiter, const Event& event) = 0;
  virtual bool done(const Event& event) = 0;
  // The caller itself waits until the event is done, which is expected in so many seconds: it
  // sleeps while that is far away, and looks closely when it is near. With a gate it waits no
  // longer than until that closes, and returns false then; a CPU's compute queue is the caller
  // itself, so there is nothing to wait for.
  virtual bool await(const Event& event, double expected_seconds, const Gate* gate) = 0;
  // Until every queue is empty.
  virtual void synchronize() = 0;
  // Until the device has done all that this process gave it, by these queues or any other way.
  virtual void finish() = 0;

  // Keeps the compute queue busy for about this long, so that work enqueued behind it runs without
  // gaps and its time is the device's own. Nothing on the CPU, which has no such gaps.
  virtual void hold_compute(double seconds) = 0;

  // An event with a time. It is kept until forget_timed(), which ends all of them.
  virtual Event record_timed(Queue queue) = 0;
  // Of two timed events that are done.
  virtual double seconds_between(const Event& begin, const Event& end) = 0;
  virtual void forget_timed() = 0;

  // Calls `work` and returns after it, with its exception if it threw. Operators belong in here:
  // on CUDA it is always the same thread per device and process (library handles and their
  // workspaces are per thread, and autograd calls backward from a thread of its own), with the
  // caller's current stream and torch's thread-local state; the caller must not hold Python's
  // lock. On the CPU it is the caller's own thread. Inside `work`, run() is a plain call.
  virtual void run(const std::function<void()>& work) = 0;

  // Calls `work`, which enqueues on the compute queue alone, and keeps what it enqueues instead of
  // doing it. Null if the device cannot do that with this work; then nothing was done. Inside
  // run().
  virtual std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) = 0;
  // While it lives, the calling thread is on a stream from which work can be captured: after what
  // its own stream has, and before what that gets later. Null where there is nothing to change.
  // Libraries keep a workspace for each stream: what runs there must have been recorded there.
  virtual std::unique_ptr<StreamScope> own_stream() = 0;

  // Libraries remember choices for each thread: cuDNN, which algorithm to take for a convolution.
  // As run(), but on a thread that begins and ends with the call: nothing remembered is found, and
  // nothing stays. May be called inside run().
  virtual void run_aside(const std::function<void()>& work) = 0;
  // Operators in run() have made libraries choose otherwise than they would.
  virtual void note_choices() = 0;
  // If so, run() goes on with a thread that remembers nothing. Where operators run on the caller's
  // own thread nothing can be done. Not inside run().
  virtual void forget_choices() = 0;
};

// "cpu", "cuda" (the first one) or "cuda:1". All callers that open the same device share it.
Result<std::shared_ptr<ExecutionDevice>> open_device(std::string_view name);

}  // namespace regen::execute
