// A wait for the daemon, which may be long: for memory, or for the device. It is shown as progress, with
// the place in the queue, and ends when the program is interrupted.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "regen/base/json.h"
#include "regen/base/progress/progress.h"
#include "regen/base/result.h"

namespace regen::share {

struct ClientOptions;
struct JobSpec;

// What a job waits for.
enum class WaitFor : std::uint8_t { kAdmission, kMemory, kTurn };

class Waiting {
 public:
  // Both must outlive it.
  Waiting(const ClientOptions& options, const JobSpec& job, WaitFor what);

  // Whether a wait has to be looked at while it lasts; otherwise it may just sleep.
  bool attended() const;
  bool interrupted() const;
  // Returns once there is something to read; an error when the program was interrupted.
  Status until_readable(int descriptor);
  // Sleeps so long; an error as above.
  Status pause(std::chrono::nanoseconds time);
  // What holds things up, as progress.
  void say(const std::string& note);

 private:
  Error interruption() const;
  void look();

  const ClientOptions& options_;
  const JobSpec& job_;
  WaitFor what_;
  std::optional<Progress> progress_;  // from the first sleep on that was not short
  std::chrono::steady_clock::time_point last_look_;
};

// Of a daemon's status report: "place 2 of 3" among the jobs that wait for memory, "2 other jobs wait"
// among those that wait for the device. Empty where the job is not found.
std::string queue_text(const Json& report, const std::string& identity);

}  // namespace regen::share
