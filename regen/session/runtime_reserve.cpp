#include "regen/session/runtime_reserve.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

namespace regen::session {
namespace {

constexpr RuntimeReserve kCpu{.allocations = Bytes{16} << 10};
constexpr RuntimeReserve kCuda{.allocations = Bytes{8} << 20,
                               .page = Bytes{2} << 20,
                               .captured_call = Bytes{8} << 10,
                               .kernels = Bytes{256} << 20,
                               .kernels_before = Bytes{80} << 20,
                               .alone = Bytes{1536} << 20};

// By device, the most that was noted in this process.
class MostTaken {
 public:
  Bytes note(const execute::ExecutionDevice& device, Bytes taken) {
    const std::lock_guard lock(mutex_);
    Bytes& known = most_[device.torch_device().str()];
    known = std::max(known, taken);
    return known;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Bytes> most_;
};

}  // namespace

RuntimeReserve runtime_reserve(c10::Device device) {
  return device.is_cpu() ? kCpu : kCuda;
}

RuntimeReserve runtime_reserve(const execute::ExecutionDevice& device) {
  return runtime_reserve(device.torch_device());
}

Bytes note_library_bytes(const execute::ExecutionDevice& device, Bytes taken) {
  static MostTaken libraries;
  return libraries.note(device, taken);
}

Bytes loaded_kernel_bytes(const RuntimeReserve& reserve, Bytes beside_before, Bytes beside_after) {
  const Bytes taken = beside_after <= reserve.alone ? beside_after - beside_before : 0;
  return std::clamp<Bytes>(taken, 0, reserve.kernels);
}

Bytes note_kernel_bytes(const execute::ExecutionDevice& device, Bytes beside_before,
                        Bytes beside_after) {
  static MostTaken kernels;
  return kernels.note(device,
                      loaded_kernel_bytes(runtime_reserve(device), beside_before, beside_after));
}

}  // namespace regen::session
