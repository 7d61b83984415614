#include "python/interrupts.h"

#include <unistd.h>

#include <csignal>

namespace regen {
namespace {

std::atomic<bool> pressed{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

// Of the outermost scope; scopes are on the main thread alone.
int scopes = 0;
struct sigaction of_python;

extern "C" void handle_interrupt(int number, siginfo_t* info, void* context) {
  pressed.store(true, std::memory_order_relaxed);
  if ((of_python.sa_flags & SA_SIGINFO) != 0) {
    of_python.sa_sigaction(number, info, context);
  } else {
    of_python.sa_handler(number);
  }
}

bool on_main_thread() {
  return ::gettid() == ::getpid();
}

}  // namespace

const std::atomic<bool>* Interrupts::flag() {
  return &pressed;
}

Interrupts::Interrupts() {
  if (!on_main_thread()) return;
  installed_ = true;
  if (scopes++ > 0) return;
  pressed = false;
  ::sigaction(SIGINT, nullptr, &of_python);
  if (of_python.sa_handler == SIG_DFL || of_python.sa_handler == SIG_IGN) return;
  struct sigaction own = of_python;
  own.sa_sigaction = handle_interrupt;
  own.sa_flags |= SA_SIGINFO;
  ::sigaction(SIGINT, &own, nullptr);
}

Interrupts::~Interrupts() {
  if (!installed_ || --scopes > 0) return;
  ::sigaction(SIGINT, &of_python, nullptr);
  pressed = false;
}

void Interrupts::raise(bool failed) {
  if (!on_main_thread() || !pressed) return;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
  if (!failed) return;
  PyErr_SetNone(PyExc_KeyboardInterrupt);
  throw pybind11::error_already_set();
}

}  // namespace regen
