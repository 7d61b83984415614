// A thread that does what it is given, in order: one queue of the CPU device.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "regen/base/units.h"

namespace regen::execute {

class WorkQueue {
 public:
  // A copy takes at least its bytes divided by `bytes_per_second` (0: as fast as it goes).
  explicit WorkQueue(double bytes_per_second = 0);
  // Does what is left first. Queues that wait for each other must be idle before any of them goes.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Each enqueues one piece of work. `to` and `from` stay valid until it is done.
  void copy(void* to, const void* from, Bytes bytes);
  void wait_for(WorkQueue& other, std::uint64_t ticket);
  void stamp(double* seconds);  // writes the time at which the queue gets there
  void post(std::function<void()> work);

  // The ticket of the newest work: that is done when done() says so. Ticket 0 always is.
  std::uint64_t newest() const;
  bool done(std::uint64_t ticket) const;
  void block_until(std::uint64_t ticket);

  // Throws what some posted work has thrown, once. What was enqueued behind it has been skipped.
  void rethrow();

 private:
  struct Work {
    void* to = nullptr;
    const void* from = nullptr;
    Bytes bytes = 0;
    WorkQueue* other = nullptr;
    std::uint64_t ticket = 0;
    double* seconds = nullptr;
    std::function<void()> call;
  };

  void enqueue(Work work);
  void loop();
  void perform(Work& work);
  void perform_all(std::vector<Work>& batch);

  const double bytes_per_second_;
  mutable std::mutex mutex_;
  std::condition_variable more_;      // for the thread: work, or the end
  std::condition_variable progress_;  // for waiting threads: done_ has grown
  std::vector<Work> pending_;
  std::uint64_t enqueued_ = 0;
  std::atomic<std::uint64_t> done_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

// A clock for stamps, in seconds.
double now_seconds();

}  // namespace regen::execute
