// All work of the process that is under way, for its watchers: the line on the terminal, and one
// reader of events.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "regen/base/progress/progress.h"

namespace regen {

// One piece of work. The board's lock is held around all access to what changes.
struct ProgressWork {
  using Clock = std::chrono::steady_clock;

  ProgressWork(ProgressBoard& owner, ProgressState known)
      : board(owner), state(std::move(known)), began(Clock::now()) {}

  ProgressBoard& board;
  ProgressState state;
  const Clock::time_point began;
  bool news = true;  // something that the reader of events has not seen
};

class ProgressBoard {
 public:
  using Clock = ProgressWork::Clock;

  // Never destroyed, since threads may look at it until the process ends. A forked child has one of its
  // own: work of its parent is none of it.
  static ProgressBoard& of_process();

  // Whether there is a line or a reader.
  bool watched() const;
  std::shared_ptr<ProgressWork> begin(ProgressState known);
  void change(ProgressWork& work, const std::function<void(ProgressState&)>& change);
  void end(const std::shared_ptr<ProgressWork>& work);

  // For the line: what to show now, if anything is worth it.
  std::optional<ProgressState> shown();
  // Sleeps until there is work that a line may be about.
  void wait_for_work();

  // For the reader of events. Work that begins while it reads is kept for it.
  void read_events(bool reads);
  // Sleeps until something has changed, for so many seconds at most. Of work that lasts there is news
  // every second, since time has passed.
  void wait_for_events(double seconds);
  // What has changed since the last call, what has ended first.
  std::vector<ProgressState> take_events();
  // The reader's sleep ends.
  void wake_reader();

 private:
  ProgressBoard() = default;
  ProgressState now(const ProgressWork& work) const;
  bool has_line_work() const;
  static void replace_in_child();

  mutable std::mutex mutex_;
  std::condition_variable work_began_;  // for the line
  std::condition_variable news_;        // for the reader
  std::vector<std::shared_ptr<ProgressWork>> works_;
  std::uint64_t begun_ = 0;
  // Since when the process has been at work, short pauses left out.
  Clock::time_point busy_since_;
  std::optional<Clock::time_point> paused_since_;
  std::atomic<bool> read_{false};
  bool woken_ = false;
  std::deque<ProgressState> ended_;  // that the reader has not seen
};

}  // namespace regen
