// What the sources named *_cuda.cpp give to the rest. In a build whose torch has no CUDA,
// cuda_absent.cpp answers instead, with errors.
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "regen/base/result.h"
#include "regen/execute/device/device.h"
#include "regen/execute/device/memory_meter.h"

namespace regen::execute {

Result<std::shared_ptr<ExecutionDevice>> open_cuda_device(int index);

// Put the allocator that asks allocation_hook.h in front of torch's, and take it back.
Status install_cuda_hook(c10::Device device);
void remove_cuda_hook();

Result<MemoryUse> cuda_memory_use(c10::Device device);
Status reset_cuda_memory_peak(c10::Device device);

}  // namespace regen::execute
