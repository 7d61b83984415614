#include "cli/output/terminal_screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "cli/output/output.h"

namespace regen::cli {
namespace {

using Event = TerminalScreen::Event;

// A screen of its own, so that what was there before comes back; no cursor.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH};

constexpr char kStop = '\x1a';  // Ctrl-Z
constexpr std::array<std::pair<std::string_view, Event>, 12> kKeys{{
    {"q", Event::kQuit},
    {"Q", Event::kQuit},
    {"\x03", Event::kQuit},
    {"\x1c", Event::kQuit},
    {"k", Event::kUp},
    {"j", Event::kDown},
    {"\x1b[A", Event::kUp},
    {"\x1b[B", Event::kDown},
    {"\x1bOA", Event::kUp},
    {"\x1bOB", Event::kDown},
    {"\x1b[5~", Event::kPageUp},
    {"\x1b[6~", Event::kPageDown},
}};

bool is_ignored(int number) {
  struct sigaction action {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

bool TerminalScreen::possible() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0 && term != nullptr &&
         *term != '\0' && std::string_view(term) != "dumb";
}

// Signals are read like keys: nothing happens in the middle of something else.
Result<TerminalScreen> TerminalScreen::open() {
  TerminalScreen screen;
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int number : kSignals) {
    if (!is_ignored(number)) ::sigaddset(&signals, number);
  }
  screen.signals_ = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (screen.signals_ < 0 || ::tcgetattr(STDIN_FILENO, &screen.before_) != 0) {
    const Error error = bad_input("cannot use the terminal: " + std::string(std::strerror(errno)) +
                                  ", expected one, or --once");
    if (screen.signals_ >= 0) ::close(screen.signals_);
    return error;
  }
  ::sigprocmask(SIG_BLOCK, &signals, &screen.mask_before_);
  screen.open_ = true;
  screen.enter();
  return screen;
}

TerminalScreen::TerminalScreen(TerminalScreen&& other) noexcept
    : open_(std::exchange(other.open_, false)),
      before_(other.before_),
      mask_before_(other.mask_before_),
      signals_(other.signals_),
      signal_(other.signal_) {}

TerminalScreen::~TerminalScreen() {
  if (!open_) return;
  leave();
  ::close(signals_);
  ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
}

void TerminalScreen::enter() const {
  termios raw = before_;
  raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG | IEXTEN));
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  (void)print(kEnter).ok();
}

// Keys that were pressed and not read are not for the shell.
void TerminalScreen::leave() const {
  (void)print(kLeave).ok();
  ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

TerminalScreen::Size TerminalScreen::size() {
  winsize found{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) != 0 || found.ws_col == 0 || found.ws_row == 0) {
    return {};
  }
  return {found.ws_col, found.ws_row};
}

Status TerminalScreen::show(const std::vector<std::string>& lines) const {
  std::string text = "\x1b[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    text += (i == 0 ? "" : "\r\n") + lines[i] + "\x1b[K";
  }
  return print(text + "\x1b[J");
}

Event TerminalScreen::wait(double seconds, int descriptor) {
  if (!keys_.empty()) return next_key();
  std::array<pollfd, 3> asked{{{STDIN_FILENO, POLLIN, 0},
                               {.fd = signals_, .events = POLLIN, .revents = 0},
                               {.fd = descriptor, .events = POLLIN, .revents = 0}}};
  const int milliseconds = static_cast<int>(std::ceil(std::max(0.0, seconds) * 1e3));
  if (::poll(asked.data(), asked.size(), milliseconds) <= 0) return Event::kTime;
  if (asked[1].revents != 0) return on_signal();
  if (asked[0].revents != 0) return on_keys();
  return Event::kReady;
}

Event TerminalScreen::on_signal() {
  signalfd_siginfo info{};
  if (::read(signals_, &info, sizeof info) != sizeof info) return Event::kRedraw;
  const int number = static_cast<int>(info.ssi_signo);
  if (number == SIGWINCH) return Event::kRedraw;
  if (number == SIGTSTP) return stop_and_go_on();
  if (number != SIGINT) signal_ = number;
  return Event::kQuit;
}

// As shells expect of Ctrl-Z.
Event TerminalScreen::stop_and_go_on() const {
  leave();
  ::raise(SIGSTOP);
  enter();
  return Event::kRedraw;
}

Event TerminalScreen::on_keys() {
  std::array<char, 64> buffer;
  const ssize_t count = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return Event::kRedraw;
  if (count <= 0) return Event::kQuit;
  keys_.append(buffer.data(), static_cast<std::size_t>(count));
  return next_key();
}

// Keys that mean nothing here are left out.
Event TerminalScreen::next_key() {
  for (const auto& [bytes, event] : kKeys) {
    if (!keys_.starts_with(bytes)) continue;
    keys_.erase(0, bytes.size());
    return event;
  }
  if (keys_[0] == kStop) {
    keys_.erase(0, 1);
    return stop_and_go_on();
  }
  const bool sequence = keys_.starts_with("\x1b[");
  const auto ends = [](char c) { return c >= '@' && c <= '~'; };
  const auto end = sequence ? std::find_if(keys_.begin() + 2, keys_.end(), ends) : keys_.begin();
  keys_.erase(keys_.begin(), end == keys_.end() ? end : end + 1);
  return Event::kRedraw;
}

}  // namespace regen::cli
