#include "regen/share/holder.h"

#include <chrono>
#include <utility>

namespace regen::share {
namespace {

Nanoseconds clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<std::shared_ptr<Holder>> Holder::join(const ClientOptions& options, const JobSpec& spec) {
  REGEN_ASSIGN(Client client, Client::connect(options, spec));
  const std::shared_ptr<Holder> holder(new Holder(std::move(client)));
  holder->watcher_ = std::thread([raw = holder.get()] { raw->watch(); });
  return holder;
}

// The watcher sleeps on a word that only the daemon can change, so it is woken until it has heard.
Holder::~Holder() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  client_.idle();
  changed_.notify_all();
  const ClientPage::Sleep sleep = client_.sleep();
  lock.unlock();
  while (!ended_) {
    sleep.wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  watcher_.join();
}

Status Holder::begin() {
  const std::lock_guard lock(mutex_);
  if (users_ == 0) {
    ++uses_;  // a device that is about to be given back is kept
    comes_back_ = rest_began_ > 0 && clock_now() - rest_began_ <= kSoon;
    if (!client_.keep_going()) {
      REGEN_TRY(client_.acquire());
      changed_.notify_all();
    }
  }
  ++users_;
  return {};
}

void Holder::end(const Afterwards& afterwards) {
  const std::lock_guard lock(mutex_);
  if (--users_ > 0) return;
  rest_began_ = clock_now();
  afterwards_ = afterwards;
  if (!should_give_back()) return;
  if (afterwards.gives_back && !afterwards.finish) {
    client_.idle();
    ++returns_;
  } else {
    changed_.notify_all();
  }
}

Status Holder::wait() {
  const std::lock_guard lock(mutex_);
  ++pauses_;
  REGEN_TRY(client_.acquire());
  changed_.notify_all();
  return {};
}

int Holder::reconnections() {
  const std::lock_guard lock(mutex_);
  return client_.reconnections();
}

// While somebody waits it looks again every moment, so that steps that follow each other need not
// wake it.
void Holder::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (client_.calm()) {
      const ClientPage::Sleep sleep = client_.sleep();
      lock.unlock();
      sleep.while_calm();
      lock.lock();
    } else if (!client_.holding()) {
      changed_.wait(lock);
    } else if (users_ == 0 && should_give_back()) {
      give_back(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(kMoment));
    }
  }
  ended_ = true;
}

// Of a job at rest.
bool Holder::should_give_back() const {
  if (!client_.holding() || client_.calm()) return false;
  const bool asked = !client_.keep_going();
  return asked || afterwards_.gives_back || !comes_back_ || clock_now() - rest_began_ >= kMoment;
}

void Holder::give_back(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t use = uses_;
  const auto finish = afterwards_.finish;
  const Nanoseconds asked = clock_now();
  lock.unlock();
  try {
    if (finish) finish();
  } catch (...) {
    // The device failed; whoever uses it next is told, and others need not wait for that.
  }
  lock.lock();
  if (uses_ != use || ending_) return;
  // The device itself has been at rest only since now.
  if (clock_now() - asked > kMoment / 10) rest_began_ = clock_now();
  if (!should_give_back()) return;
  client_.idle();
  ++returns_;
}

}  // namespace regen::share
