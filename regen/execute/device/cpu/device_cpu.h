// The CPU as a device: operators run on the caller's thread, copies on two threads of their own.
// With options it can be as awkward as a GPU, for tests.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "regen/execute/device/device.h"

namespace regen::execute {

struct CpuDeviceOptions {
  // Of each copy queue; 0 is as fast as memory.
  double copy_bytes_per_second = 0;
  // Gives the compute queue a thread too: wait(kCompute, ...) returns at once, and work goes there
  // by post(), as kernels do on a GPU.
  bool asynchronous_compute = false;
  // run() uses one thread for all callers, as on CUDA.
  bool run_on_worker = false;
  // capture() works: what is kept is the call, made again by each launch.
  bool captures = false;
  // Other than the processor's, for tests with several devices.
  std::string name = {};
  // What all arenas of the device may have together; 0 is as much as the system gives.
  Bytes arena_bytes = 0;
};

class CpuDevice : public ExecutionDevice {
 public:
  // Enqueues a call. kCompute needs asynchronous_compute; else the call is made here and now.
  virtual void post(Queue queue, std::function<void()> work) = 0;
};

std::shared_ptr<CpuDevice> make_cpu_device(const CpuDeviceOptions& options = {});

}  // namespace regen::execute
