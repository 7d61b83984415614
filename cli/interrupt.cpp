#include "cli/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace regen::cli {
namespace {

constexpr int kEndedBySigint = 130;

std::atomic<bool> pressed{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

struct sigaction previous;

extern "C" void handle_sigint(int) {
  if (pressed.exchange(true, std::memory_order_relaxed)) ::_exit(kEndedBySigint);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  pressed.store(false, std::memory_order_relaxed);
  ::sigaction(SIGINT, nullptr, &previous);
  if (previous.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = handle_sigint;
  ::sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &previous, nullptr);
}

const std::atomic<bool>* InterruptGuard::flag() const {
  return &pressed;
}

}  // namespace regen::cli
