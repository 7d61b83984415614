// Two clocks for every search: wall time, and counted work, which gives the
// same answer on every machine.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace regen {

struct Limits {
  double seconds = std::numeric_limits<double>::infinity();
  std::int64_t work = std::numeric_limits<std::int64_t>::max();
  // Host memory for one model of the search, such as a linear model. A search that estimates more
  // for a model does not build it and goes on without.
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  // Set from outside (Ctrl-C) to end the search with what it has; must outlive the search.
  const std::atomic<bool>* interrupt = nullptr;
  // The same for an observer of the search that needs no better result (Problem::observer).
  const std::atomic<bool>* enough = nullptr;
};

// Counts the work of one search and says when to stop. One thread at a time,
// except cancel(), which any thread or a signal handler may call.
class Effort {
 public:
  explicit Effort(Limits limits = {}) : limits_(limits), start_(Clock::now()) {}

  void add(std::int64_t work) { work_ += work; }
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  bool interrupted() const {
    return cancelled_.load(std::memory_order_relaxed) || is_set(limits_.interrupt) ||
           is_set(limits_.enough);
  }
  bool exhausted() const {
    return interrupted() || work_ >= limits_.work || seconds() >= limits_.seconds;
  }
  // Whether a model of so many host bytes may be built.
  bool has_room_for(std::int64_t bytes) const { return bytes <= limits_.bytes; }
  double seconds_left() const { return limits_.seconds - seconds(); }
  std::int64_t work_left() const { return limits_.work - work_; }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  std::int64_t work() const { return work_; }
  const Limits& limits() const { return limits_; }

 private:
  using Clock = std::chrono::steady_clock;
  static bool is_set(const std::atomic<bool>* flag) {
    return flag != nullptr && flag->load(std::memory_order_relaxed);
  }

  Limits limits_;
  Clock::time_point start_;
  std::int64_t work_ = 0;
  std::atomic<bool> cancelled_{false};
};

}  // namespace regen
