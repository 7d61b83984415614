#include "regen/execute/device/device.h"

#include <unistd.h>

#include <map>
#include <mutex>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/device/cuda_backend.h"

namespace regen::execute {
namespace {

// Empty when the name is not "cuda" or "cuda:N".
Result<int> cuda_index(std::string_view name) {
  const Error wrong =
      bad_input("device '" + std::string(name) + "': expected cpu, cuda or cuda:N, such as cuda:1");
  if (!name.starts_with("cuda")) return wrong;
  name.remove_prefix(4);
  if (name.empty()) return 0;
  if (!name.starts_with(":")) return wrong;
  const auto index = parse_int(name.substr(1));
  if (!index.ok() || *index < 0 || *index > 127) return wrong;
  return static_cast<int>(*index);
}

Result<std::shared_ptr<ExecutionDevice>> make_device(int index) {
  if (index < 0) return std::shared_ptr<ExecutionDevice>(make_cpu_device());
  return open_cuda_device(index);
}

// A child that was forked has the device but none of its threads, and must not wait for them: there
// the device is never destroyed.
std::shared_ptr<ExecutionDevice> kept_by_its_process(std::shared_ptr<ExecutionDevice> device) {
  ExecutionDevice* const raw = device.get();
  const auto let_go = [owner = std::move(device), home = getpid()](ExecutionDevice*) mutable {
    if (getpid() == home) {
      owner.reset();
    } else {
      new std::shared_ptr<ExecutionDevice>(std::move(owner));
    }
  };
  return {raw, let_go};
}

}  // namespace

std::string_view to_string(Queue queue) {
  switch (queue) {
    case Queue::kCompute:
      return "compute";
    case Queue::kToHost:
      return "to_host";
    case Queue::kToDevice:
      return "to_device";
  }
  return "?";
}

ExecutionDevice::~ExecutionDevice() = default;
CapturedWork::~CapturedWork() = default;
StreamScope::~StreamScope() = default;

Result<std::shared_ptr<ExecutionDevice>> open_device(std::string_view name) {
  int index = -1;
  if (name != "cpu") {
    REGEN_ASSIGN(index, cuda_index(name));
  }
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<ExecutionDevice>> open;
  const std::lock_guard lock(mutex);
  if (auto device = open[index].lock()) return device;
  REGEN_ASSIGN(auto made, make_device(index));
  const auto device = kept_by_its_process(std::move(made));
  open[index] = device;
  return device;
}

}  // namespace regen::execute
