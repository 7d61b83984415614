// Where the filler and the thread that serves the consumers meet: the FeedQueue under a mutex.
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

  // Whatever either side does to the queue. The result is what `call` returns.
  template <typename Call>
  auto with(Call call) {
    const std::lock_guard lock(mutex_);
    return call(queue_);
  }

  // The filler sleeps until there is something to make; nothing when it is over.
  std::optional<FeedQueue::Fill> begin();
  // Sleeps until everybody has left.
  void wait_for_end();

  // What the serving thread has to do after a change. The filler looks again as well.
  struct Due {
    std::vector<FeedQueue::Delivery> deliveries;
    bool stuck = false;
  };
  Due settle();
  // Nobody will come.
  void end();
  bool over();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  FeedQueue queue_;
  bool over_ = false;
};

}  // namespace regen::share
