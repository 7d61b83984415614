#include "regen/share/input/feed_books.h"

namespace regen::share {

std::optional<FeedQueue::Fill> FeedBooks::begin() {
  std::unique_lock lock(mutex_);
  std::optional<FeedQueue::Fill> fill;
  changed_.wait(lock, [&] {
    if (over_ || queue_.failed()) return true;
    fill = queue_.begin();
    return fill.has_value();
  });
  return fill;
}

void FeedBooks::wait_for_end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return over_; });
}

FeedBooks::Due FeedBooks::settle() {
  Due due;
  {
    const std::lock_guard lock(mutex_);
    due = {queue_.take_deliveries(), queue_.stuck()};
    over_ = over_ || queue_.over();
  }
  changed_.notify_all();
  return due;
}

void FeedBooks::end() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
}

bool FeedBooks::over() {
  const std::lock_guard lock(mutex_);
  return over_;
}

}  // namespace regen::share
