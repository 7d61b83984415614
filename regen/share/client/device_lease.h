// The device lease: a job's hold on its device, for all threads of the process. It is held while
// any work is between begin() and end(), and kept between two pieces of work as long as no other
// job waits for the device.
//
//   begin()      the device is this job's; without a message to the daemon if it was kept
//     ...        work; a step under a plan asks open() and gives way by wait()
//   end()        nothing to do for now
//
// Between end() and the next begin() a watcher thread sleeps on the word that the daemon writes.
// When another job waits for the device, the watcher lets the device finish what was issued and
// gives it back. A training loop is idle only briefly, and giving the device back between any two
// steps would defeat the weights. So a job that came back soon last time keeps the device for the
// time that it usually needs (IdlePredictor), unless a job of higher rank waits.
//
// While the job does not hold the device, the same thread handles the daemon's messages: it makes
// room when asked, gets below a lower limit where it can, and joins a daemon that was started
// again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "regen/base/preemption_gate.h"
#include "regen/share/client/client.h"
#include "regen/share/client/idle_predictor.h"
#include "regen/share/client/movable_memory.h"

namespace regen::share {

// What a piece of work leaves behind.
struct ReleaseOptions {
  // Returns when the device has done what was issued; called before the device is given back, from
  // any thread. None: it has.
  std::function<void()> finish = {};
  // The job will not be back soon: the next job that waits gets the device now.
  bool gives_back = false;
};

// Methods may be called from any thread. A piece of work that asks open() runs alone (Run); others
// may begin and end beside it, and then it is the one that decides when to give way.
class DeviceLease final : public Gate {
 public:
  static Result<std::shared_ptr<DeviceLease>> join(const ClientOptions& options,
                                                   const JobSpec& spec);
  ~DeviceLease() override;

  // Returns once the device is this job's, and it stays so until the matching end(), except where a
  // Run gives way meanwhile.
  Status begin();
  void end(const ReleaseOptions& release_options = {});

  // A piece of work that gives way: one at a time.
  class Run {
   public:
    explicit Run(DeviceLease& lease) : lease_(lease), alone_(lease.running_) {}
    ~Run() {
      if (begun_) lease_.end(release_options);
    }
    Status begin() {
      Status status = lease_.begin();
      begun_ = status.ok();
      return status;
    }
    ReleaseOptions release_options;

   private:
    DeviceLease& lease_;
    std::unique_lock<std::mutex> alone_;
    bool begun_ = false;
  };

  bool open() const override { return client_.keep_going(); }
  bool hurried() const override { return !client_.outranks_all(); }
  Status wait() override;

  // Required before a curve passed to report_curve() declares that the job can spill or leave.
  void set_memory(std::shared_ptr<MovableMemory> memory);
  // Reports what the job needs, once it has planned (Client::update). False, without a report,
  // while work is under way: the device would have to be given back.
  Result<bool> report_curve(const Curve& curve);
  // Between two steps, inside of begin() and end(): how many bytes the job may use, and that it
  // does (Client::byte_limit, Client::confirm).
  Bytes byte_limit();
  void confirm(Bytes used);

  const JobSpec& spec() const { return client_.spec(); }
  // How often work gave way in the middle, and how often a kept device was given back.
  std::int64_t pauses() const { return pauses_; }
  std::int64_t returns() const { return returns_; }
  // How often memory was moved out of the way.
  std::int64_t rooms() const { return rooms_; }
  int reconnections();

  // In a forked child, where the thread is missing and the connection belongs to the parent, this
  // is the only call that may be made.
  void abandon();

 private:
  explicit DeviceLease(Client client) : client_(std::move(client)) {}
  Status acquire(bool in_step);
  Status come_back();
  Bytes make_room(Depth depth);
  void note_request();
  void wake_watcher();
  void watch();
  void listen(std::unique_lock<std::mutex>& lock);
  bool attend();
  void sleep_until_asked(std::unique_lock<std::mutex>& lock);
  void look_for_daemon(std::unique_lock<std::mutex>& lock);
  bool should_give_back() const;
  void give_back(std::unique_lock<std::mutex>& lock);

  std::mutex running_;  // of the Run; taken before the other
  std::mutex mutex_;    // of all that follows
  std::condition_variable changed_;
  // Changed with the mutex held: by the first begin(), by the Run, or by the watcher while there is
  // no work. So the call of open() in a Run has no concurrent writer.
  Client client_;
  int users_ = 0;
  std::uint64_t uses_ = 0;    // beginnings so far
  Nanoseconds asked_at_ = 0;  // of the present work
  Nanoseconds rest_began_ = 0;
  Nanoseconds work_began_ = 0;  // later by what was waited for in the middle of it
  IdlePredictor idle_predictor_;
  ReleaseOptions release_options_;
  RequestTimes requests_;  // of pieces of work that give the device back
  RecentTimes request_times_;
  Nanoseconds requests_told_at_ = 0;
  std::shared_ptr<MovableMemory> memory_;
  bool away_ = false;       // memory was moved out of the way and has not come back
  Descriptor wake_;         // an eventfd, for the watcher while it listens
  bool listening_ = false;  // the watcher sleeps on its descriptors
  bool refused_ = false;    // no daemon takes the job again: its next use returns the error
  Nanoseconds pause_ = 0;   // before the daemon is looked for again
  std::atomic<bool> abandoned_ = false;
  std::atomic<std::int64_t> rooms_ = 0;
  std::atomic<std::int64_t> pauses_ = 0;
  std::atomic<std::int64_t> returns_ = 0;
  bool ending_ = false;
  std::atomic<bool> ended_ = false;
  std::thread watcher_;
};

}  // namespace regen::share
