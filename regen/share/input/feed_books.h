// The FeedQueue under a mutex, between the filler and the thread that serves the consumers.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "regen/share/input/feed_queue.h"

namespace regen::share {

class FeedBooks {
 public:
  explicit FeedBooks(const FeedQueue::Options& options) : queue_(options) {}

  // Runs `call` on the queue under the mutex and returns its result.
  template <typename Call>
  auto with(Call call) {
    const std::lock_guard lock(mutex_);
    return call(queue_);
  }

  // The filler sleeps until there is something to make; nothing when it is over.
  std::optional<FeedQueue::Fill> begin();
  // Sleeps until all consumers have left.
  void wait_for_end();

  // What the serving thread has to do after a change. The filler looks again as well.
  struct Due {
    std::vector<FeedQueue::Delivery> deliveries;
    bool stuck = false;
  };
  Due settle();
  // No consumer will come.
  void end();
  bool over();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  FeedQueue queue_;
  bool over_ = false;
};

}  // namespace regen::share
