// The state of the device's random generator, to draw the same numbers again.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "regen/execute/device/quietly.h"

namespace regen::execute {

class GeneratorState {
 public:
  // Bytes that one saved state takes on the device that is planned for.
  static std::int64_t saved_bytes(c10::Device device);

  static GeneratorState current(c10::Device device);
  void restore() const;

 private:
  c10::Device device_ = c10::Device(c10::kCPU);
  at::Tensor state_;        // on the CPU the whole state
  std::uint64_t seed_ = 0;  // elsewhere a counter says all
  std::uint64_t offset_ = 0;
};

// Puts the generator back to where it was.
class GeneratorGuard {
 public:
  explicit GeneratorGuard(c10::Device device) : state_(GeneratorState::current(device)) {}
  ~GeneratorGuard() {
    quietly(Lost::kPrint, [&] { state_.restore(); });
  }
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  GeneratorState state_;
};

}  // namespace regen::execute
