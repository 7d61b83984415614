// Ctrl-C during a search: the first ends the search with what it has found, the second the program.
// However a program ends, no line of progress stays on the terminal.
#pragma once

#include <atomic>

namespace regen::cli {

// While one lives, SIGINT sets a flag instead of ending the program; another SIGINT ends it at once
// with status 130, as shells expect. Only one may live at a time. A program started with SIGINT
// ignored (nohup, a shell's background job) goes on ignoring it.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // For Limits::interrupt.
  const std::atomic<bool>* flag() const;
  bool interrupted() const { return flag()->load(std::memory_order_relaxed); }
};

// Where there may be a line of progress: signals that end the program wipe it first. Signals that are
// ignored, or caught, stay so. At the beginning of a program.
void wipe_line_at_signals();

}  // namespace regen::cli
