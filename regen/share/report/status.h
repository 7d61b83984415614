// The daemon's report about its devices and jobs: as values and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regen/base/json.h"
#include "regen/share/report/recent_times.h"
#include "regen/share/scheduler/device_queue.h"

namespace regen::share {

struct JobStatus {
  std::string name;
  std::string identity;
  std::int64_t process = 0;
  std::int64_t user = -1;  // -1: unknown
  std::int64_t priority = 0;
  double weight = 1;
  std::optional<Nanoseconds> deadline;
  Bytes memory = 0;  // asked for
  Bytes least_bytes = 0;
  Bytes persistent_bytes = 0;
  Depth deepest = Depth::kPause;
  Bytes limit_bytes = 0;  // what it may use now
  Bytes held_bytes = 0;   // what is counted as its own
  Bytes used_bytes = 0;   // as last reported
  const char* memory_state = "settled";
  JobState state = JobState::kIdle;
  bool asked_to_give_way = false;
  Nanoseconds age = 0;
  JobCounts counts;
  std::optional<Percentiles> waits;          // for its last grants
  std::optional<std::int64_t> requests;      // answered, as it says
  std::optional<Percentiles> request_times;  // of its last ones

  bool over_limit() const { return used_bytes > limit_bytes; }
  // Of the device's time since the job came.
  double share() const {
    return age > 0 ? static_cast<double>(counts.used) / static_cast<double>(age) : 0;
  }
};

struct DeviceStatus {
  std::string name;
  Bytes bytes = 0;
  Bytes used_bytes = 0;
  Nanoseconds busy = 0;
  std::int64_t turns = 0;     // so far
  Nanoseconds asked_for = 0;  // for how long the holder has been asked to give way
  bool in_turns = false;      // jobs take turns with their memory
  bool closed = false;        // a former holder is still in its last quantum
  std::int64_t finished_jobs = 0;
  std::vector<JobStatus> jobs;
  std::vector<JobStatus> newcomers;  // wait for memory
};

struct DaemonStatus {
  std::int64_t process = 0;
  Nanoseconds age = 0;
  std::int64_t connections = 0;
  std::int64_t refused_messages = 0;
  std::vector<DeviceStatus> devices;
};

const char* to_string(JobState state);

Json to_json(const DaemonStatus& status);

}  // namespace regen::share
