// regen share top: what the daemon does, live in the terminal.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/output/terminal_screen.h"
#include "cli/output/visible_text.h"
#include "cli/share/share_verbs.h"
#include "cli/share/top_view.h"
#include "regen/share/client/channel.h"

namespace regen::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Event = TerminalScreen::Event;
using Seconds = std::chrono::duration<double>;

// A connection without a job that says nothing for longer may be closed by the daemon.
constexpr double kKeepsConnection = 2;
// How often what is shown about an answer that does not come is written again.
constexpr double kLook = 1;

struct ShareTopArguments {
  std::string socket;
  double interval = 1;
  bool once = false;
};

const share::Message& question() {
  static const share::Message message{share::MessageType::kStatus, Json::object()};
  return message;
}

// Asks the daemon once in an interval, and never waits for it.
class Reports {
 public:
  Reports(std::string socket, double interval) : socket_(std::move(socket)), interval_(interval) {}

  // -1: no answer is on its way.
  int descriptor() const { return channel_ && asked_ ? channel_->descriptor() : -1; }
  double seconds_to_next() const {
    if (asked_) return kLook;
    return std::max(0.0, Seconds(due_ - Clock::now()).count());
  }
  void ask_if_due() {
    if (asked_ || Clock::now() < due_) return;
    due_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(interval_));
    if (!channel_) {
      auto opened = share::Channel::open(socket_);
      if (!opened.ok()) return lose(opened.error().message);
      channel_.emplace(std::move(*opened));
    }
    channel_->send(question());
    asked_ = true;
  }
  // The report, if it has come.
  std::optional<Json> take() {
    auto message = channel_->receive_now();
    if (!message.ok()) lose(message.error().message);
    if (channel_ && channel_->ended()) lose("the daemon has gone");
    if (!channel_ || !message->has_value()) return std::nullopt;
    asked_ = false;
    trouble_.clear();
    if (interval_ > kKeepsConnection) channel_.reset();
    if ((**message).type != share::MessageType::kReport) return std::nullopt;
    return std::move((**message).body);
  }
  // What is wrong; empty: nothing.
  const std::string& trouble() const { return trouble_; }

 private:
  void lose(const std::string& why) {
    trouble_ = why;
    channel_.reset();
    asked_ = false;
  }

  std::string socket_;
  double interval_;
  std::optional<share::Channel> channel_;
  bool asked_ = false;
  Clock::time_point due_ = {};
  std::string trouble_;
};

// The part of the lines that the screen has room for, under a first line that stays.
class Window {
 public:
  void move(Event event, std::size_t rows) {
    const std::size_t page = std::max<std::size_t>(rows, 3) - 2;
    if (event == Event::kUp || event == Event::kPageUp) {
      first_ -= std::min(first_, event == Event::kUp ? 1 : page);
    }
    if (event == Event::kDown) ++first_;
    if (event == Event::kPageDown) first_ += page;
  }
  std::vector<std::string> shown(const std::string& head, const std::vector<std::string>& lines,
                                 const TerminalScreen::Size& size) {
    std::vector<std::string> shown{head};
    const std::size_t room = size.rows > 1 ? size.rows - 1 : 0;
    first_ = std::min(first_, lines.size() - std::min(lines.size(), room));
    const std::size_t end = std::min(lines.size(), first_ + room);
    for (std::size_t i = first_; i < end; ++i) shown.push_back(lines[i]);
    const std::size_t hidden = lines.size() - (end - first_);
    if (hidden > 0 && room > 1) {
      const std::string more = "  " + format_count(hidden + 1, "line") + " more: arrow keys";
      shown.back() = in_columns(more, std::min(size.columns, more.size()));
    }
    return shown;
  }

 private:
  std::size_t first_ = 0;
};

std::string head_line(const TopView& view, const Reports& reports, std::size_t columns) {
  std::string text = "regen share: " + view.summary() + "  (q: quit)";
  if (!reports.trouble().empty()) {
    text = "old numbers: " + visible_text(reports.trouble(), utf8_wanted());
  }
  const std::size_t width = std::min(columns, std::max<std::size_t>(1, columns_of(text)));
  return bold(in_columns(text, width));
}

Status run_live(TopView& view, Reports& reports, TerminalScreen& screen) {
  Window window;
  while (true) {
    reports.ask_if_due();
    const auto size = TerminalScreen::size();
    const TopShape shape{.columns = size.columns, .utf8 = utf8_wanted()};
    REGEN_TRY(
        screen.show(window.shown(head_line(view, reports, size.columns), view.lines(shape), size)));
    const Event event = screen.wait(reports.seconds_to_next(), reports.descriptor());
    if (event == Event::kQuit) return {};
    window.move(event, size.rows);
    if (event != Event::kReady) continue;
    if (auto report = reports.take()) view.add(std::move(*report));
  }
}

// Rates are differences, so that it takes two reports.
Status run_once(const ShareTopArguments& arguments, const std::string& socket, TopView& view) {
  std::this_thread::sleep_for(Seconds(arguments.interval));
  REGEN_ASSIGN(Json report, share::ask(socket, question(), share::MessageType::kReport));
  view.add(std::move(report));
  std::string text = view.summary() + "\n";
  const std::size_t columns = ::isatty(STDOUT_FILENO) != 0 ? TerminalScreen::size().columns : 0;
  for (const std::string& line : view.lines({.columns = columns, .utf8 = utf8_wanted()})) {
    text += line + "\n";
  }
  return print(text);
}

Status run_top(const ShareTopArguments& arguments) {
  const std::string socket = chosen_socket(arguments.socket);
  REGEN_ASSIGN(Json first, share::ask(socket, question(), share::MessageType::kReport));
  TopView view;
  view.add(std::move(first));
  if (arguments.once || !TerminalScreen::possible()) return run_once(arguments, socket, view);
  int signal = 0;
  {
    REGEN_ASSIGN(TerminalScreen screen, TerminalScreen::open());
    Reports reports(socket, arguments.interval);
    REGEN_TRY(run_live(view, reports, screen));
    signal = screen.signal();
  }
  if (signal != 0) std::raise(signal);  // as if it had come now
  return {};
}

}  // namespace

void add_share_top(CLI::App& share, Action& action) {
  CLI::App& verb = add_verb(share, "top", "Show devices and jobs live in the terminal",
                            "  regen share top --interval 0.5\n  regen share top --once");
  auto arguments = std::make_shared<ShareTopArguments>();
  add_socket(verb, arguments->socket);
  add_interval(verb, arguments->interval);
  verb.add_flag("--once", arguments->once, "Print the numbers of one interval and end");
  set_action<ShareTopArguments>(verb, action, arguments, run_top);
}

}  // namespace regen::cli
