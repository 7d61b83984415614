#include "regen/execute/run/generator.h"

#include <ATen/Context.h>

#include <mutex>

namespace regen::execute {
namespace {

at::Generator default_generator(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

}  // namespace

std::int64_t GeneratorState::saved_bytes(c10::Device device) {
  constexpr std::int64_t kMersenneTwister = 5120;  // 5,056 bytes in an allocation of their own
  return device.is_cpu() ? kMersenneTwister : 0;
}

GeneratorState GeneratorState::current(c10::Device device) {
  GeneratorState saved;
  saved.device_ = device;
  at::Generator generator = default_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (device.is_cpu()) {
    saved.state_ = generator.get_state();
  } else {
    saved.seed_ = generator.current_seed();
    saved.offset_ = generator.get_offset();
  }
  return saved;
}

void GeneratorState::restore() const {
  at::Generator generator = default_generator(device_);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  if (device_.is_cpu()) {
    generator.set_state(state_);
  } else {
    generator.set_current_seed(seed_);
    generator.set_offset(offset_);
  }
}

}  // namespace regen::execute
