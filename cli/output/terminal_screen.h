// The whole terminal for a program that shows something live, and keys. However the program ends, but for SIGKILL, the
// terminal is as it was before.
#pragma once

#include <termios.h>

#include <csignal>
#include <string>
#include <vector>

#include "regen/base/result.h"

namespace regen::cli {

class TerminalScreen {
 public:
  // Whether standard input and output are a terminal that can be drawn on.
  static bool possible();
  static Result<TerminalScreen> open();
  TerminalScreen(TerminalScreen&& other) noexcept;
  ~TerminalScreen();

  struct Size {
    std::size_t columns = 80;
    std::size_t rows = 24;
  };
  static Size size();
  // In place of what was there; each line at most as wide as the screen.
  Status show(const std::vector<std::string>& lines) const;

  enum class Event {
    kTime,    // it has passed
    kReady,   // the other descriptor has something
    kRedraw,  // the size is another one, or the program goes on after a stop
    kUp,
    kDown,
    kPageUp,
    kPageDown,
    kQuit,  // q, Ctrl-C, the end of the input, or a signal that ends programs
  };
  // Sleeps until something happens, at most so long. `descriptor`: -1: none.
  Event wait(double seconds, int descriptor);
  // That asked to end, if one did: for the caller to end by, once the terminal is as it was.
  int signal() const { return signal_; }

 private:
  TerminalScreen() = default;
  void enter() const;
  void leave() const;
  Event stop_and_go_on() const;
  Event on_signal();
  Event on_keys();
  Event next_key();

  bool open_ = false;
  termios before_{};
  sigset_t mask_before_{};
  int signals_ = -1;
  int signal_ = 0;
  std::string keys_;  // that were read and not looked at
};

}  // namespace regen::cli
