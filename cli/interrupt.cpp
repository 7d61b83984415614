#include "cli/interrupt.h"

#include <unistd.h>

#include <array>
#include <csignal>

#include "regen/base/progress/progress_line.h"

namespace regen::cli {
namespace {

constexpr int kEndedBySigint = 130;

std::atomic<bool> pressed{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

struct sigaction previous;

extern "C" void handle_sigint(int) {
  if (!pressed.exchange(true, std::memory_order_relaxed)) return;
  end_progress_line();
  ::_exit(kEndedBySigint);
}

// Installed for one signal, and gone when it runs: the signal then does what it does by default.
extern "C" void handle_end(int number) {
  end_progress_line();
  ::raise(number);
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

void wipe_line_at_signals() {
  if (!progress_line_wanted()) return;
  for (const int number : std::array{SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction now {};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_DFL) continue;
    now.sa_handler = handle_end;
    now.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    ::sigaction(number, &now, nullptr);
  }
}

}  // namespace regen::cli
