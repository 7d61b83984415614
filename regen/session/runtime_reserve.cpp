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
                               .kernels = Bytes{256} << 20};

}  // namespace

RuntimeReserve runtime_reserve(const execute::ExecutionDevice& device) {
  return device.torch_device().is_cpu() ? kCpu : kCuda;
}

Bytes note_library_bytes(const execute::ExecutionDevice& device, Bytes taken) {
  static std::mutex mutex;
  static std::map<std::string, Bytes> most;
  const std::lock_guard lock(mutex);
  Bytes& known = most[device.torch_device().str()];
  known = std::max(known, taken);
  return known;
}

}  // namespace regen::session
