// The line on standard error that says what the process waits for, where that is a terminal. It comes
// when work has lasted a second, changes in place, and is gone when the work ends. It is never longer
// than the terminal is wide: the width is asked for each time, so that a changed window counts at once.
//
// Where NO_COLOR is set, or TERM says that the terminal knows no escape codes, the line is overwritten
// with spaces. REGEN_PROGRESS=0, a program in the background of its shell, and output that is no
// terminal have no line.
//
// Between two drawings the cursor stands at the beginning of the line: a narrower window wraps the line,
// and what is wiped from there on is all of it, and nothing else.
#pragma once

#include <atomic>

namespace regen {

bool progress_line_wanted();
// Where the terminal is not this program's to write to: a Python program may have redirected its
// standard error, or run in a notebook. Allowed from the start.
void allow_progress_line(bool allowed);

// While one lives, the line is away, for other output on the terminal.
class ProgressPause {
 public:
  ProgressPause();
  ~ProgressPause();
  ProgressPause(const ProgressPause&) = delete;
  ProgressPause& operator=(const ProgressPause&) = delete;
};
// The same in two calls. `inside_line`: the last output did not end its line, which is not to be
// overwritten: the line stays away until output has ended one.
void pause_progress_line();
void resume_progress_line(bool inside_line);

// For a program that ends, or becomes another one. May be called by a signal handler; the line does not
// come again.
void end_progress_line() noexcept;

// --- for the board

void start_progress_line();
void wipe_progress_line();
// In a forked child: the line is the parent's.
void forget_progress_line();

}  // namespace regen
