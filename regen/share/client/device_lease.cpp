#include "regen/share/client/device_lease.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>

namespace regen::share {
namespace {

// Between two reports about requests: a message is cheap beside so long a time.
constexpr Nanoseconds kRequestsPause = 1'000'000'000;

Nanoseconds clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<std::shared_ptr<DeviceLease>> DeviceLease::join(const ClientOptions& options,
                                                       const JobSpec& spec) {
  REGEN_ASSIGN(Client client, Client::connect(options, spec));
  const std::shared_ptr<DeviceLease> lease(new DeviceLease(std::move(client)));
  lease->wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!lease->wake_.valid())
    return limit_reached(
        "no descriptor left for the job's watcher, expected fewer open files or a higher limit "
        "(ulimit -n)");
  try {
    lease->watcher_ = std::thread([raw = lease.get()] { raw->watch(); });
  } catch (const std::system_error& error) {
    return limit_reached(std::string("no thread left for the job's watcher: ") + error.what() +
                         ", expected fewer processes or a higher limit (ulimit -u)");
  }
  return lease;
}

// The watcher sleeps on a word that only the daemon can change, so it is woken until it has heard.
DeviceLease::~DeviceLease() {
  std::unique_lock lock(mutex_);
  ending_ = true;
  client_.idle();
  if (!watcher_.joinable()) return;  // it could not be started
  wake_watcher();
  const ClientPage::Sleep sleep = client_.sleep();
  lock.unlock();
  while (!ended_) {
    sleep.wake();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  watcher_.join();
}

Status DeviceLease::begin() {
  const std::lock_guard lock(mutex_);
  if (users_ == 0) {
    ++uses_;  // a device that is about to be given back is kept
    asked_at_ = clock_now();
    if (rest_began_ > 0) idle_predictor_.rested(asked_at_ - rest_began_);
    if (!client_.keep_going()) REGEN_TRY(acquire(/*in_step=*/false));
    REGEN_TRY(come_back());
    work_began_ = clock_now();
  }
  ++users_;
  return {};
}

Status DeviceLease::acquire(bool in_step) {
  refused_ = false;
  Status status = client_.acquire(in_step);
  wake_watcher();
  return status;
}

void DeviceLease::end(const ReleaseOptions& release_options) {
  const std::lock_guard lock(mutex_);
  if (--users_ > 0) return;
  rest_began_ = clock_now();
  idle_predictor_.worked(rest_began_ - work_began_);
  release_options_ = release_options;
  if (release_options.gives_back) note_request();
  if (!should_give_back()) return;
  if (release_options.gives_back && !release_options.finish) {
    client_.idle();
    ++returns_;
  } else {
    changed_.notify_all();
  }
}

// The daemon does not hear of requests while no other job waits, so that it is told now and then.
void DeviceLease::note_request() {
  ++requests_.count;
  request_times_.add(rest_began_ - asked_at_, rest_began_);
  if (rest_began_ - requests_told_at_ < kRequestsPause) return;
  requests_told_at_ = rest_began_;
  requests_.recent = request_times_.percentiles(rest_began_);
  client_.report_requests(requests_);
}

Status DeviceLease::wait() {
  const std::lock_guard lock(mutex_);
  ++pauses_;
  const Nanoseconds asked = clock_now();
  REGEN_TRY(acquire(/*in_step=*/true));
  work_began_ += clock_now() - asked;
  return come_back();
}

void DeviceLease::abandon() {
  abandoned_ = true;
  client_.abandon();
  // A thread that sleeps on the connection keeps it open. In a child that is the parent's thread,
  // which goes back to sleep.
  ::eventfd_write(wake_.number(), 1);
}

int DeviceLease::reconnections() {
  const std::lock_guard lock(mutex_);
  return client_.reconnections();
}

// While another job waits, the watcher polls, so that consecutive steps need not wake it.
void DeviceLease::watch() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (client_.calm()) {
      const ClientPage::Sleep sleep = client_.sleep();
      lock.unlock();
      sleep.while_calm();
      lock.lock();
    } else if (!client_.holding() && users_ == 0) {
      listen(lock);
    } else if (users_ == 0 && should_give_back()) {
      give_back(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(kMinKeepTime));
    }
  }
  ended_ = true;
}

// Of a job at rest.
bool DeviceLease::should_give_back() const {
  if (!client_.holding() || client_.calm()) return false;
  const bool asked = !client_.keep_going();
  return asked || release_options_.gives_back ||
         clock_now() - rest_began_ >= idle_predictor_.patience();
}

void DeviceLease::give_back(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t use = uses_;
  const auto finish = release_options_.finish;
  const Nanoseconds asked = clock_now();
  lock.unlock();
  try {
    if (finish) finish();
  } catch (...) {
    // The device failed. Its next use reports the error; other jobs need not wait for that.
  }
  lock.lock();
  if (uses_ != use || ending_) return;
  // The device itself has been at rest only since now.
  if (clock_now() - asked > kMinKeepTime / 10) rest_began_ = clock_now();
  if (!should_give_back()) return;
  client_.idle();
  ++returns_;
}

// --- Memory

void DeviceLease::set_memory(std::shared_ptr<MovableMemory> memory) {
  const std::lock_guard lock(mutex_);
  memory_ = std::move(memory);
  client_.on_make_room([this](Depth depth) { return make_room(depth); });
}

Result<bool> DeviceLease::report_curve(const Curve& curve) {
  const std::lock_guard lock(mutex_);
  if (users_ > 0) return false;
  ++uses_;
  // What was issued is done before another job gets the device.
  if (client_.holding() && release_options_.finish) release_options_.finish();
  REGEN_TRY(client_.update(curve));
  wake_watcher();
  return true;
}

Bytes DeviceLease::byte_limit() {
  const std::lock_guard lock(mutex_);
  return client_.byte_limit();
}

void DeviceLease::confirm(Bytes used) {
  const std::lock_guard lock(mutex_);
  client_.confirm(used);
}

Bytes DeviceLease::make_room(Depth depth) {
  if (memory_ == nullptr || ending_) return client_.spec().held_bytes;
  away_ = true;
  const Bytes left = memory_->make_room(depth);
  ++rooms_;  // afterwards: a reader of the count also sees what became of the request
  return left;
}

Status DeviceLease::come_back() {
  if (!away_) return {};
  REGEN_TRY(memory_->come_back());
  away_ = false;
  return {};
}

// --- What the daemon says while the job does not hold the device

void DeviceLease::wake_watcher() {
  changed_.notify_all();
  if (!listening_) return;
  ::eventfd_write(wake_.number(), 1);
}

void DeviceLease::listen(std::unique_lock<std::mutex>& lock) {
  if (attend()) {
    pause_ = 0;
    sleep_until_asked(lock);
  } else {
    look_for_daemon(lock);
  }
}

// Between two steps; in the middle of one the job is inside acquire() and reads what is said there.
// False when there is no daemon to listen to.
bool DeviceLease::attend() {
  if (refused_ || abandoned_ || !client_.poll()) return false;
  // A plan for fewer bytes comes with the next step. Until then nothing of the present one is
  // needed on the device.
  if (client_.spec().deepest >= Depth::kSpill && client_.must_shrink()) {
    const Bytes left = make_room(Depth::kSpill);
    if (left <= client_.byte_limit()) client_.confirm(left);
  }
  return true;
}

void DeviceLease::sleep_until_asked(std::unique_lock<std::mutex>& lock) {
  std::array<pollfd, 2> both{
      {{client_.descriptor(), POLLIN, 0}, {.fd = wake_.number(), .events = POLLIN, .revents = 0}}};
  listening_ = true;
  lock.unlock();
  ::poll(both.data(), both.size(), -1);
  lock.lock();
  listening_ = false;
  eventfd_t times = 0;
  ::eventfd_read(wake_.number(), &times);
}

void DeviceLease::look_for_daemon(std::unique_lock<std::mutex>& lock) {
  if (refused_ || abandoned_) {
    changed_.wait(lock);
    return;
  }
  const auto joined = client_.rejoin();
  refused_ = !joined.ok();
  if (!joined.ok() || *joined) return;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  changed_.wait_for(lock, std::chrono::nanoseconds(pause_));
}

}  // namespace regen::share
