// What a job calls to share a device:
//
//   auto client = Client::connect(options, spec);
//   while (there is work) {
//     if (!client->keep_going()) REGEN_TRY(client->acquire());   // one load, unless somebody waits
//     run one window of work;
//   }
//   client->idle();                                              // nothing to do for now
//
// The daemon may end and start again at any time: the job then stops at its next keep_going(), and
// acquire() returns when the new daemon has given it the device.
#pragma once

#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/channel.h"
#include "regen/share/job.h"
#include "regen/share/page.h"

namespace regen::share {

struct ClientOptions {
  std::string socket;
  // How long to look for a daemon that has gone; without it, for ever.
  std::optional<Nanoseconds> give_up = {};
};

// Used by one thread at a time.
class Client {
 public:
  // Registers the job. An empty identity is filled with a new one. An error when there is no
  // daemon, or when it refuses the job.
  static Result<Client> connect(const ClientOptions& options, JobSpec spec);

  // Whether the job holds the device and may use it for one more window of work.
  bool keep_going() const { return holding_ && page_.go(); }

  // Returns once the job holds the device; it sleeps until then. A job that holds it but was asked
  // to give way gives way first.
  Status acquire();
  // Lets whoever comes next have the device, and returns once it is this job's turn again.
  Status yield();
  // Gives the device back; nobody waits for this job until it acquires again.
  void idle();

  // Whether it believes to hold the device, perhaps asked to give way.
  bool holding() const { return holding_; }
  // Whether it holds the device and nobody waits for it.
  bool calm() const { return holding_ && page_.calm(); }
  // For a thread that waits for the end of calm.
  ClientPage::Sleep sleep() const { return page_.sleep(); }

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

  ClientOptions options_;
  JobSpec spec_;
  Channel channel_;
  ClientPage page_;
  bool holding_ = false;
  int reconnections_ = 0;
};

}  // namespace regen::share
