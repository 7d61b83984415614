#include "regen/base/progress/progress_line.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "regen/base/progress/progress_board.h"
#include "regen/base/progress/progress_text.h"
#include "regen/base/units.h"

namespace regen {
namespace {

// Often enough to look alive, seldom enough to cost nothing.
constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kMostColumns = 200;
constexpr std::string_view kPrefix = "regen: ";
constexpr std::string_view kWipe = "\r\033[J";

struct Line {
  std::mutex mutex;  // of drawing and wiping
  std::atomic<bool> started{false};
  std::atomic<bool> failed{false};      // no thread could be started
  std::atomic<std::size_t> columns{0};  // that are on the terminal now; 0: no line
  std::atomic<bool> escapes{false};     // whether these can be wiped by an escape code
  std::atomic<int> pauses{0};
  std::atomic<bool> inside_line{false};
};

// Never destroyed: the thread that draws lives as long as the process.
std::atomic<Line*> line_in_use{new Line()};
std::atomic<bool> allowed_here{true};
std::atomic<bool> ended{false};

Line& the_line() {
  return *line_in_use;
}

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

bool knows_escapes() {
  const std::string_view terminal = variable("TERM");
  return variable("NO_COLOR").empty() && !terminal.empty() && terminal != "dumb";
}

// A shell's background job must not write over what the user types.
bool in_foreground() {
  const pid_t group = ::tcgetpgrp(STDERR_FILENO);
  return group < 0 || group == ::getpgrp();
}

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return std::min<std::size_t>(size.ws_col, kMostColumns);
  }
  const auto stated = parse_int(variable("COLUMNS"));
  const bool useful = stated.ok() && *stated > 0;
  return useful ? std::min<std::size_t>(static_cast<std::size_t>(*stated), kMostColumns)
                : kUsualColumns;
}

void write_out(std::string_view text) noexcept {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
}

constexpr std::array<char, kMostColumns> kSpaces = [] {
  std::array<char, kMostColumns> spaces{};
  spaces.fill(' ');
  return spaces;
}();

void wipe(Line& line) noexcept {
  const std::size_t columns = line.columns.exchange(0);
  if (columns == 0) return;
  if (line.escapes) return write_out(kWipe);
  write_out("\r");
  write_out({kSpaces.data(), std::min(columns, kSpaces.size())});
  write_out("\r");
}

void show(Line& line, const ProgressState& state) {
  // The last column stays free: some terminals wrap as soon as it is written.
  const std::size_t columns = terminal_columns() - 1;
  std::string text(kPrefix);
  text += progress_text(state, columns - std::min(columns, kPrefix.size()));
  text.resize(std::min(text.size(), columns));
  line.escapes = knows_escapes();
  const std::size_t before = line.columns.exchange(text.size());
  if (line.escapes) return write_out("\r" + text + std::string(kWipe.substr(1)) + "\r");
  const std::size_t rest = std::min(before, columns) - std::min({before, columns, text.size()});
  write_out("\r" + text + std::string(rest, ' ') + "\r");
}

void draw(Line& line, ProgressBoard& board) {
  const std::lock_guard lock(line.mutex);
  const bool away = line.pauses > 0 || line.inside_line || ended || !progress_line_wanted();
  const auto state = away ? std::nullopt : board.shown();
  if (state) {
    show(line, *state);
  } else {
    wipe(line);
  }
}

void draw_for_ever(Line& line, ProgressBoard& board) {
  while (true) {
    board.wait_for_work();
    draw(line, board);
    std::this_thread::sleep_for(kRedraw);
  }
}

// Signals are for the threads of the program: one that is asleep in a call would not wake.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

bool progress_line_wanted() {
  return allowed_here && !ended && !the_line().failed && ::isatty(STDERR_FILENO) != 0 &&
         in_foreground() && variable("REGEN_PROGRESS") != "0";
}

void allow_progress_line(bool allowed) {
  if (allowed_here.exchange(allowed) && !allowed) wipe_progress_line();
}

void start_progress_line() {
  Line& line = the_line();
  if (line.started.exchange(true)) return;
  const NoSignals quiet;
  try {
    std::thread(draw_for_ever, std::ref(line), std::ref(ProgressBoard::of_process())).detach();
  } catch (const std::system_error&) {
    line.failed = true;  // work goes on without a line
  }
}

void wipe_progress_line() {
  Line& line = the_line();
  if (!line.started) return;
  const std::lock_guard lock(line.mutex);
  wipe(line);
}

void forget_progress_line() {
  line_in_use = new Line();
}

void end_progress_line() noexcept {
  ended = true;
  wipe(the_line());
}

void pause_progress_line() {
  ++the_line().pauses;
  wipe_progress_line();
}

void resume_progress_line(bool inside_line) {
  the_line().inside_line = inside_line;
  --the_line().pauses;
}

ProgressPause::ProgressPause() {
  pause_progress_line();
}

ProgressPause::~ProgressPause() {
  resume_progress_line(/*inside_line=*/false);
}

}  // namespace regen
