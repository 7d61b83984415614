#include "regen/base/progress/progress_board.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "regen/base/progress/progress_line.h"

namespace regen {
namespace {

using Clock = ProgressBoard::Clock;

// What is over sooner needs no line.
constexpr std::chrono::milliseconds kWorthALine{1000};
// Work inside other work is shown once it has lasted so long: less would flicker.
constexpr std::chrono::milliseconds kWorthAChange{300};
// Pauses between two works that are one long work for a person.
constexpr std::chrono::milliseconds kPause{500};
// Of work of which nothing else is new.
constexpr std::chrono::duration<double> kHeartbeat{1};
// For a reader that does not read.
constexpr std::size_t kMostEnded = 1000;

std::atomic<ProgressBoard*> board_in_use{nullptr};

}  // namespace

ProgressBoard& ProgressBoard::of_process() {
  static const bool made = [] {
    board_in_use = new ProgressBoard();
    ::pthread_atfork(nullptr, nullptr, replace_in_child);
    return true;
  }();
  (void)made;
  return *board_in_use;
}

// Whatever thread held the lock is not in the child, nor is the thread of the line.
void ProgressBoard::replace_in_child() {
  board_in_use = new ProgressBoard();
  forget_progress_line();
}

bool ProgressBoard::watched() const {
  return read_.load(std::memory_order_relaxed) || progress_line_wanted();
}

std::shared_ptr<ProgressWork> ProgressBoard::begin(ProgressState known) {
  const bool in_line = !known.background && progress_line_wanted();
  auto work = std::make_shared<ProgressWork>(*this, std::move(known));
  {
    const std::lock_guard lock(mutex_);
    work->state.number = ++begun_;
    const bool joined = work->state.joins && paused_since_ && work->began - *paused_since_ < kPause;
    if (!has_line_work() && !joined) busy_since_ = work->began;
    works_.push_back(work);
    work_began_.notify_all();
    if (read_) news_.notify_all();
  }
  if (in_line) start_progress_line();
  return work;
}

void ProgressBoard::change(ProgressWork& work, const std::function<void(ProgressState&)>& change) {
  const std::lock_guard lock(mutex_);
  change(work.state);
  if (!read_ || std::exchange(work.news, true)) return;
  news_.notify_all();
}

void ProgressBoard::end(const std::shared_ptr<ProgressWork>& work) {
  bool over = false;
  {
    const std::lock_guard lock(mutex_);
    std::erase(works_, work);
    over = !work->state.background && !has_line_work();
    if (over) paused_since_ = work->state.joins ? std::optional(Clock::now()) : std::nullopt;
    if (read_) {
      ended_.push_back(now(*work));
      ended_.back().ended = true;
      if (ended_.size() > kMostEnded) ended_.pop_front();
      news_.notify_all();
    }
  }
  if (over) wipe_progress_line();
}

ProgressState ProgressBoard::now(const ProgressWork& work) const {
  ProgressState state = work.state;
  state.seconds = std::chrono::duration<double>(Clock::now() - work.began).count();
  return state;
}

bool ProgressBoard::has_line_work() const {
  return std::ranges::any_of(works_, [](const auto& work) { return !work->state.background; });
}

// The work that began last is the innermost.
std::optional<ProgressState> ProgressBoard::shown() {
  const std::lock_guard lock(mutex_);
  const Clock::time_point moment = Clock::now();
  if (!has_line_work() || moment - busy_since_ < kWorthALine) return std::nullopt;
  const ProgressWork* chosen = nullptr;
  for (const auto& work : works_) {
    if (work->state.background) continue;
    if (chosen == nullptr || moment - work->began >= kWorthAChange) chosen = work.get();
  }
  return now(*chosen);
}

void ProgressBoard::wait_for_work() {
  std::unique_lock lock(mutex_);
  work_began_.wait(lock, [&] { return has_line_work(); });
}

void ProgressBoard::read_events(bool reads) {
  const std::lock_guard lock(mutex_);
  read_ = reads;
  if (!reads) ended_.clear();
}

void ProgressBoard::wait_for_events(double seconds) {
  const auto any_news = [&] {
    return woken_ || !ended_.empty() ||
           std::ranges::any_of(works_, [](const auto& work) { return work->news; });
  };
  std::unique_lock lock(mutex_);
  const auto most = works_.empty() ? seconds : std::min(seconds, kHeartbeat.count());
  const bool changed = news_.wait_for(lock, std::chrono::duration<double>(most), any_news);
  for (const auto& work : works_) work->news |= !changed;
  woken_ = false;
}

std::vector<ProgressState> ProgressBoard::take_events() {
  const std::lock_guard lock(mutex_);
  std::vector<ProgressState> events(ended_.begin(), ended_.end());
  ended_.clear();
  for (const auto& work : works_) {
    if (std::exchange(work->news, false)) events.push_back(now(*work));
  }
  return events;
}

void ProgressBoard::wake_reader() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  news_.notify_all();
}

}  // namespace regen
