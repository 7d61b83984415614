// Ctrl-C while C++ works without Python's lock: the work ends soon, and Python gets its
// KeyboardInterrupt.
#pragma once

#include <pybind11/pybind11.h>

#include <atomic>
#include <utility>

namespace regen {

class Interrupts {
 public:
  // For work that can be interrupted: set while a scope lives on the main thread and Ctrl-C was
  // pressed.
  static const std::atomic<bool>* flag();

  // While one lives, SIGINT sets the flag and goes on to Python's handler. Only on the main thread,
  // where Python handles signals, and where SIGINT is handled at all.
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // With Python's lock: what Python's handler raises. `failed`: the work did not do what it was to do;
  // then Ctrl-C is the reason, whatever the handler does.
  static void raise(bool failed);

 private:
  bool installed_ = false;
};

// What `work` returns, a Result or a Status, without Python's lock.
template <typename Work>
auto interruptible(const Work& work) {
  const Interrupts interrupts;
  auto result = [&] {
    const pybind11::gil_scoped_release unlocked;
    return work();
  }();
  Interrupts::raise(!result.ok());
  return result;
}

}  // namespace regen
