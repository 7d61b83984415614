// A build whose torch has no CUDA.
#ifndef REGEN_WITH_CUDA

#include "regen/execute/device/cuda_backend.h"

namespace regen::execute {
namespace {

Error no_cuda() {
  return missing("CUDA device: the torch that regen was built with has no CUDA; use cpu");
}

}  // namespace

Result<std::shared_ptr<ExecutionDevice>> open_cuda_device(int /*index*/) {
  return no_cuda();
}
Status install_cuda_hook(c10::Device /*device*/) {
  return no_cuda();
}
void remove_cuda_hook() {}
Result<MemoryUse> cuda_memory_use(c10::Device /*device*/) {
  return no_cuda();
}
Status reset_cuda_memory_peak(c10::Device /*device*/) {
  return no_cuda();
}

}  // namespace regen::execute

#endif
