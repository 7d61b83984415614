// What a job calls to share a device:
//
//   auto client = Client::connect(options, spec);          // waits until there is memory for it
//   while (there is work) {
//     const Bytes limit = client->byte_limit();            // between two steps; one load
//     if (limit > limit of the plan) client->confirm(bytes in use);    // may use it from now on
//     if (limit != limit of the plan) switch to the plan for it;
//     if (it was less) client->confirm(bytes in use);      // others may have the rest
//     for each quantum of work of the step {
//       if (!client->keep_going()) REGEN_TRY(client->acquire());   // one load, unless a job waits
//       run it;
//     }
//   }
//   client->idle();                                        // nothing to do for now
//
// The daemon may end and start again at any time: the job then stops at its next keep_going(), and
// acquire() returns when the new daemon has given it the device.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/client/channel.h"
#include "regen/share/client/device_use.h"
#include "regen/share/client/waiting.h"
#include "regen/share/protocol/job.h"
#include "regen/share/protocol/page.h"
#include "regen/share/report/request_times.h"

namespace regen::share {

// Between two attempts to find a daemon that has gone: twice as long each time.
inline constexpr Nanoseconds kFirstPause = 10'000'000;
inline constexpr Nanoseconds kLongestPause = 250'000'000;

struct ClientOptions {
  std::string socket;
  // How long to look for a daemon that has gone; without it, for ever.
  std::optional<Nanoseconds> give_up = {};
  // Set from outside (Ctrl-C) to end a wait with an error, except in the middle of a step; null: never.
  const std::atomic<bool>* interrupt = nullptr;
};

// All functions are called by one thread at a time. A forked child must not use its parent's.
class Client {
 public:
  // Moves the job's memory off the device to this depth and returns the bytes that are still on it.
  // It is called by the thread that is inside acquire(), yield(), idle(), update() or poll(), never
  // while the job runs a quantum of work, and not deeper than the job registered. The job brings
  // its memory back, as it was, once acquire() or yield() has returned.
  using MakeRoom = std::function<Bytes(Depth)>;

  // Registers the job and returns once it is admitted; it sleeps while other jobs make room. An
  // empty identity is filled with a new one. An error when there is no daemon, or when it refuses
  // the job.
  static Result<Client> connect(const ClientOptions& options, JobSpec spec);

  // Whether the job holds the device and may use it for one more quantum of work.
  bool keep_going() const { return holding_ && page_.go(); }
  // Returns once the job holds the device; it sleeps until then. A job that holds it but was asked
  // to give way gives way first. `in_step`: something is under way that must not end here, so that an
  // interrupt does not end the wait.
  Status acquire(bool in_step = false);
  // Passes the device to the next job, and returns once it is this job's turn again.
  Status yield();
  // Gives the device back; the job does not compete until it acquires again. Where jobs take turns
  // with their memory, it makes room first.
  void idle();

  // Whether it holds the device, as far as this client has seen; it may have been asked to give
  // way.
  bool holding() const { return holding_; }
  // Whether it holds the device and no other job waits for it.
  bool calm() const { return holding_ && page_.calm(); }
  // Whether no job is registered that could interrupt it in the middle of its turn.
  bool outranks_all() const { return page_.outranks_all(); }
  // For a thread that sleeps while the page is calm.
  ClientPage::Sleep sleep() const { return page_.sleep(); }

  // How many bytes the job may use from its next step on: one load, between two steps. At first the
  // job may use this limit at once; to use more later, it confirms first.
  Bytes byte_limit();
  // Whether the limit is less than what the job may still be using.
  bool must_shrink() { return byte_limit() < spec_.full_bytes; }
  // From now on the job uses at most the limit that byte_limit() gave last; `used` is what it uses
  // now. Call it after using less and before using more. It does not wait for an answer.
  void confirm(Bytes used);
  // Tells the daemon how long the job's requests took, for its report; a daemon that does not know the message
  // is told nothing.
  void report_requests(const RequestTimes& times);
  // Reports what the job needs, once it has planned: returns when its limit is at least the least
  // bytes of the curve. Gives the device back first. An error when that is impossible; the job is
  // then as before, and joins again at its next acquire().
  Status update(const Curve& curve);

  // Required before a job registers that it can spill or leave.
  void on_make_room(MakeRoom handler) { make_room_ = std::move(handler); }
  // Carries out the daemon's requests that have arrived. An idle job should call it now and then,
  // or whenever descriptor() is readable, and check must_shrink() after it. False: the daemon has
  // gone, or has refused this job.
  bool poll();
  // One attempt to join a daemon again after poll() returned false: false when there is none yet.
  // For a job that does not hold the device; acquire() does the same by itself.
  Result<bool> rejoin();
  // For poll(2); another one after each lost daemon.
  int descriptor() const { return channel_.descriptor(); }

  const JobSpec& spec() const { return spec_; }
  // How often a lost daemon was found again.
  int reconnections() const { return reconnections_; }
  // For a forked child: the connection belongs to its parent.
  void abandon() { channel_ = Channel(); }

 private:
  Client(ClientOptions options, JobSpec spec);
  // False: the daemon went away meanwhile.
  Result<bool> register_job(Waiting* waiting = nullptr);
  Status reconnect(Waiting& waiting);
  Status wait_for_turn(MessageType request, bool in_step);
  Result<bool> next_turn(Waiting& waiting);
  void withdraw();
  static Channel::Sleep sleep_of(Waiting* waiting);
  void answer(const Message& message);
  void look();

  ClientOptions options_;
  JobSpec spec_;  // with what the job has on the device, in case it must register again
  Channel channel_;
  ClientPage page_;
  DeviceUse use_;
  MakeRoom make_room_;
  ByteLimit seen_;  // the limit as it was read last
  Bytes used_ = 0;  // as confirmed last
  bool holding_ = false;
  bool takes_requests_ = false;  // this daemon, message kRequests
  int reconnections_ = 0;
};

}  // namespace regen::share
