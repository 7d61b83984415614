#include "regen/execute/device/cpu/work_queue.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace regen::execute {
namespace {

using Clock = std::chrono::steady_clock;

// Piece by piece, each after its fraction of the time, so that a copy under way is half done.
void copy_slowly(char* to, const char* from, Bytes bytes, double bytes_per_second) {
  constexpr Bytes kPiece = Bytes{64} << 10;
  const auto start = Clock::now();
  for (Bytes done = 0; done < bytes;) {
    const Bytes piece = std::min(kPiece, bytes - done);
    const std::chrono::duration<double> due(static_cast<double>(done + piece) / bytes_per_second);
    std::this_thread::sleep_until(start + std::chrono::duration_cast<Clock::duration>(due));
    std::memcpy(to + done, from + done, static_cast<std::size_t>(piece));
    done += piece;
  }
}

}  // namespace

double now_seconds() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

WorkQueue::WorkQueue(double bytes_per_second)
    : bytes_per_second_(bytes_per_second), thread_([this] { loop(); }) {}

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_one();
  thread_.join();
}

void WorkQueue::copy(void* to, const void* from, Bytes bytes) {
  enqueue({.to = to, .from = from, .bytes = bytes});
}

void WorkQueue::wait_for(WorkQueue& other, std::uint64_t ticket) {
  enqueue({.other = &other, .ticket = ticket});
}

// NOLINTNEXTLINE(readability-non-const-parameter): the thread of the queue writes it
void WorkQueue::stamp(double* seconds) {
  enqueue({.seconds = seconds});
}

void WorkQueue::post(std::function<void()> work) {
  enqueue({.call = std::move(work)});
}

std::uint64_t WorkQueue::newest() const {
  const std::lock_guard lock(mutex_);
  return enqueued_;
}

bool WorkQueue::done(std::uint64_t ticket) const {
  return done_.load(std::memory_order_acquire) >= ticket;
}

void WorkQueue::block_until(std::uint64_t ticket) {
  if (done(ticket)) return;
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return done(ticket); });
}

void WorkQueue::rethrow() {
  if (!failed_.load(std::memory_order_acquire)) return;
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
    failed_ = false;
  }
  if (error) std::rethrow_exception(error);
}

void WorkQueue::enqueue(Work work) {
  {
    const std::lock_guard lock(mutex_);
    pending_.push_back(std::move(work));
    ++enqueued_;
  }
  more_.notify_one();
}

// Takes all pending work at once: the two vectors change places and keep their memory, so that
// nothing is allocated once they are large enough.
void WorkQueue::loop() {
  std::vector<Work> batch;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      more_.wait(lock, [&] { return ending_ || !pending_.empty(); });
      if (pending_.empty()) return;
      batch.swap(pending_);
    }
    perform_all(batch);
    batch.clear();
  }
}

void WorkQueue::perform_all(std::vector<Work>& batch) {
  for (Work& work : batch) {
    std::exception_ptr error;
    try {
      perform(work);
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      if (error && !error_) {
        error_ = error;
        failed_.store(true, std::memory_order_release);
      }
      done_.fetch_add(1, std::memory_order_release);
    }
    progress_.notify_all();
  }
}

void WorkQueue::perform(Work& work) {
  if (work.other != nullptr) return work.other->block_until(work.ticket);
  if (work.seconds != nullptr) {
    *work.seconds = now_seconds();
    return;
  }
  // After an error nothing more is done until a caller has read it, as on a GPU.
  if (failed_.load(std::memory_order_acquire)) return;
  if (work.call) return work.call();
  if (bytes_per_second_ > 0) {
    copy_slowly(static_cast<char*>(work.to), static_cast<const char*>(work.from), work.bytes,
                bytes_per_second_);
  } else if (work.bytes > 0) {
    std::memcpy(work.to, work.from, static_cast<std::size_t>(work.bytes));
  }
}

}  // namespace regen::execute
