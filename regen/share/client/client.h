// What a job calls to share a device:
//
//   auto client = Client::connect(options, spec);          // waits until there is memory for it
//   while (there is work) {
//     const Bytes limit = client->byte_limit();            // between two steps; one load
//     if (limit > limit of the plan) client->confirm(bytes in use);    // may use it from now on
//     if (limit != limit of the plan) switch to the plan for it;
//     if (it was less) client->confirm(bytes in use);      // others may have the rest
//     for each quantum of work of the step {
//       if (!client->keep_going()) REGEN_TRY(client->acquire());   // one load, unless somebody
//       waits run it;
//     }
//   }
//   client->idle();                                        // nothing to do for now
//
// The daemon may end and start again at any time: the job then stops at its next keep_going(), and
// acquire() returns when the new daemon has given it the device.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/client/channel.h"
#include "regen/share/client/device_use.h"
#include "regen/share/protocol/job.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

// Between two attempts to find a daemon that has gone: twice as long each time.
inline constexpr Nanoseconds kFirstPause = 10'000'000;
inline constexpr Nanoseconds kLongestPause = 250'000'000;

struct ClientOptions {
  std::string socket;
  // How long to look for a daemon that has gone; without it, for ever.
  std::optional<Nanoseconds> give_up = {};
};

// All functions are called by one thread at a time. A forked child must not use its parent's.
class Client {
 public:
  // Gets the job's memory out of the way to this depth and returns the bytes that are still on the
  // device. It is called by the thread that is inside acquire(), yield(), idle(), update() or
  // poll(), never while the job runs a quantum of work, and not deeper than the job said it can. The
  // job brings its memory back, as it was, once acquire() or yield() has returned.
  using MakeRoom = std::function<Bytes(Depth)>;

  // Registers the job and returns once it is admitted; it sleeps while others make room. An empty
  // identity is filled with a new one. An error when there is no daemon, or when it refuses the
  // job.
  static Result<Client> connect(const ClientOptions& options, JobSpec spec);

  // Whether the job holds the device and may use it for one more quantum of work.
  bool keep_going() const { return holding_ && page_.go(); }
  // Returns once the job holds the device; it sleeps until then. A job that holds it but was asked
  // to give way gives way first.
  Status acquire();
  // Lets whoever comes next have the device, and returns once it is this job's turn again.
  Status yield();
  // Gives the device back; nobody waits for this job until it acquires again. Where jobs take turns
  // with their memory it makes room first.
  void idle();

  // Whether it believes to hold the device, perhaps asked to give way.
  bool holding() const { return holding_; }
  // Whether it holds the device and nobody waits for it.
  bool calm() const { return holding_ && page_.calm(); }
  // Whether nobody is there who could interrupt it in the middle of its turn.
  bool outranks_all() const { return page_.outranks_all(); }
  // For a thread that waits for the end of calm.
  ClientPage::Sleep sleep() const { return page_.sleep(); }

  // How many bytes the job may use from its next step on: one load. Look between two steps. At
  // first the job may use what this says; to use more later it confirms first.
  Bytes byte_limit();
  // Whether the limit is less than what the job may still be using.
  bool must_shrink() { return byte_limit() < spec_.full_bytes; }
  // From now on the job uses at most the limit that byte_limit() gave last; `used` is what it uses
  // now. So: after less is used, and before more is. No answer, no sleep.
  void confirm(Bytes used);
  // What the job needs, now that it knows: returns once its limit is at least the least bytes of
  // the curve. Gives the device back first. An error when that cannot be; the job is then as
  // before, and joins again at its next acquire().
  Status update(const Curve& curve);

  // Needed by jobs that say they can spill or leave, before they say so.
  void on_make_room(MakeRoom handler) { make_room_ = std::move(handler); }
  // Does what the daemon has asked for meanwhile. An idle job should call it now and then, or
  // whenever descriptor() is readable, and look at must_shrink() after it. False: the daemon has
  // gone, or wants no more of this job.
  bool poll();
  // One attempt to join a daemon again after poll() said that it has gone: false when none is there
  // yet. Of a job that does not hold the device; acquire() does it by itself.
  Result<bool> rejoin();
  // For poll(2); another one after each lost daemon.
  int descriptor() const { return channel_.descriptor(); }

  const JobSpec& spec() const { return spec_; }
  // How often a lost daemon was found again.
  int reconnections() const { return reconnections_; }
  // Of a process that was forked: the connection is its parent's.
  void abandon() { channel_ = Channel(); }

 private:
  Client(ClientOptions options, JobSpec spec);
  // False: the daemon went away meanwhile.
  Result<bool> register_job();
  Status reconnect();
  Status wait_for_turn(MessageType request);
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
  int reconnections_ = 0;
};

}  // namespace regen::share
