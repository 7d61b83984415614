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
    short_rests_ = rest_began_ > 0 && clock_now() - rest_began_ <= kShortRest;
    REGEN_TRY(client_.acquire());
    changed_.notify_all();
  }
  ++users_;
  return {};
}

void Holder::end(const Afterwards& afterwards) {
  const std::lock_guard lock(mutex_);
  if (--users_ > 0) return;
  rest_began_ = clock_now();
  afterwards_ = afterwards;
  if (afterwards.gives_back && !afterwards.finish && client_.holding() && !client_.calm()) {
    client_.idle();
    ++returns_;
    return;
  }
  changed_.notify_all();
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

void Holder::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (client_.calm()) {
      const ClientPage::Sleep sleep = client_.sleep();
      lock.unlock();
      sleep.while_calm();
      lock.lock();
    } else if (users_ > 0 || !client_.holding()) {
      changed_.wait(lock);
    } else {
      give_back(lock);
    }
  }
  ended_ = true;
}

// Somebody waits, and nobody works here.
void Holder::give_back(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t use = uses_;
  const auto finish = afterwards_.finish;
  lock.unlock();
  try {
    if (finish) finish();
  } catch (...) {
    // The device failed; whoever uses it next is told, and others need not wait for that.
  }
  lock.lock();
  const auto in_use_again = [&] { return uses_ != use || ending_; };
  if (in_use_again()) return;
  rest_began_ = clock_now();  // a host that waits for the device is not at rest
  const bool asked = !client_.keep_going();
  if (!asked && short_rests_ && !afterwards_.gives_back) {
    changed_.wait_for(lock, std::chrono::nanoseconds(kShortRest), in_use_again);
  }
  if (in_use_again()) return;
  client_.idle();
  ++returns_;
}

}  // namespace regen::share
