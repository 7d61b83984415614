#include "regen/execute/placement/allocation_hook.h"

#include <cstdio>
#include <cstdlib>

#include "regen/execute/device/cuda_backend.h"

namespace regen::execute {
namespace {

Status install(c10::Device device) {
  if (device.is_cpu()) return install_cpu_hook();
  if (device.is_cuda()) return install_cuda_hook(device);
  return bad_input("placement on device " + device.str() + ": expected cpu or cuda");
}

}  // namespace

constinit thread_local AllocationHook* thread_hook = nullptr;

AllocationHook::~AllocationHook() = default;

Status enter_hook(AllocationHook& hook) {
  if (thread_hook != nullptr && thread_hook->is_over()) leave_hook(*thread_hook);
  if (thread_hook != nullptr)
    return bad_input("placement or recording on " + hook.device().str() +
                     ": this thread is inside another one, on " + thread_hook->device().str());
  REGEN_TRY(install(hook.device()));
  thread_hook = &hook;
  return {};
}

void leave_hook(AllocationHook& hook) {
  if (thread_hook != &hook) {
    // The thread that entered would go on with a hook that is gone.
    std::fputs("regen: a placement or recording scope was left on another thread\n", stderr);
    std::abort();
  }
  thread_hook = nullptr;
  if (hook.device().is_cpu()) {
    remove_cpu_hook();
  } else {
    remove_cuda_hook();
  }
}

void delete_placed(void* address) {
  if (thread_hook != nullptr) thread_hook->freed(address);
}

}  // namespace regen::execute
