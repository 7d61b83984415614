#include "regen/execute/device/cpu/worker.h"

#include <ATen/ThreadLocalState.h>

#include <utility>

namespace regen::execute {

Worker::Worker() {
  start();
}

Worker::~Worker() {
  end();
}

void Worker::start() {
  ending_ = false;
  thread_ = std::thread([this] { loop(); });
  id_ = thread_.get_id();
}

void Worker::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::renew() {
  const std::lock_guard turn(turn_);
  end();
  start();
}

void Worker::run(const std::function<void()>& work) {
  if (std::this_thread::get_id() == id_.load()) return work();
  const std::lock_guard turn(turn_);
  const at::ThreadLocalState state;
  const std::function<void()> with_state = [&] {
    const at::ThreadLocalStateGuard guard(state);
    work();
  };
  std::unique_lock lock(mutex_);
  work_ = &with_state;
  changed_.notify_all();
  changed_.wait(lock, [&] { return work_ == nullptr; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Worker::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ending_ || work_ != nullptr; });
    if (work_ == nullptr) return;
    const auto* work = work_;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*work)();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    work_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace regen::execute
