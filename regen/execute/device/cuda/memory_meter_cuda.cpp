#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "regen/execute/device/cuda_backend.h"

namespace regen::execute {
namespace {

c10::DeviceIndex index_of(c10::Device device) {
  return device.has_index() ? device.index() : c10::cuda::current_device();
}

}  // namespace

Result<MemoryUse> cuda_memory_use(c10::Device device) {
  try {
    const c10::cuda::CUDAGuard guard(index_of(device));
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_of(device));
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    std::size_t free = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return MemoryUse{.allocated = stats.allocated_bytes[kAll].current,
                     .allocated_peak = stats.allocated_bytes[kAll].peak,
                     .reserved = stats.reserved_bytes[kAll].current,
                     .reserved_peak = stats.reserved_bytes[kAll].peak,
                     .driver = static_cast<Bytes>(total - free)};
  } catch (const c10::Error& error) {
    return missing("memory of " + device.str() + ": " + error.what_without_backtrace());
  }
}

Status reset_cuda_memory_peak(c10::Device device) {
  try {
    c10::cuda::CUDACachingAllocator::resetPeakStats(index_of(device));
    return {};
  } catch (const c10::Error& error) {
    return missing("memory of " + device.str() + ": " + error.what_without_backtrace());
  }
}

}  // namespace regen::execute
