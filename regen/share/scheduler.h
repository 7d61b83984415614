// All devices of a machine and the jobs on them: admission by memory, then turns. It does no input
// or output and reads no clock; whoever calls it passes the time and carries out its orders.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/device_queue.h"
#include "regen/share/job.h"
#include "regen/share/split.h"
#include "regen/share/status.h"

namespace regen::share {

struct DeviceSpec {
  std::string name;
  Bytes bytes = 0;

  bool operator==(const DeviceSpec&) const = default;
};

// "gpu0:80GiB".
Result<DeviceSpec> parse_device(std::string_view text);

class Scheduler {
 public:
  // At least one device, names different.
  Scheduler(const std::vector<DeviceSpec>& devices, Nanoseconds turn);

  // The error that add() would give; nothing changes.
  Status check(const JobSpec& spec) const;
  // The job starts idle. `process` is for people only.
  Result<JobId> add(const JobSpec& spec, std::int64_t process, Nanoseconds now);
  void remove(JobId job, Nanoseconds now);

  void want(JobId job, Nanoseconds now);
  // Refused unless the job holds its device.
  Status yield(JobId job, Nanoseconds now);
  void rest(JobId job, Nanoseconds now);
  void advance(Nanoseconds now);
  void set_closed(bool closed, Nanoseconds now);

  std::vector<Order> take_orders();
  // Who holds a device, and whether somebody waits for it.
  std::vector<std::pair<JobId, bool>> holders() const;
  std::optional<Nanoseconds> next_event() const;
  std::vector<DeviceStatus> status(Nanoseconds now) const;

  // How the device's bytes could be divided among its jobs and, where there is one, a newcomer:
  // points in the order of admission.
  Result<Split> best_split(std::string_view device, const JobSpec* newcomer = nullptr) const;

  std::size_t jobs() const { return jobs_.size(); }

 private:
  struct DeviceEntry {
    DeviceSpec spec;
    DeviceQueue queue;
    std::int64_t finished = 0;
  };
  struct JobEntry {
    JobSpec spec;
    std::size_t device = 0;
    std::int64_t process = 0;
    Nanoseconds added = 0;
  };

  Result<std::size_t> find_device(std::string_view name) const;
  Bytes used_bytes(std::size_t device) const;
  Error no_room(const JobSpec& spec, std::size_t device) const;
  DeviceQueue& queue_of(JobId job) { return devices_[jobs_.at(job).device].queue; }
  JobStatus job_status(JobId id, const JobEntry& job, Nanoseconds now) const;
  Result<Split> split_of(std::size_t device, const JobSpec* newcomer) const;

  std::vector<DeviceEntry> devices_;
  std::map<JobId, JobEntry> jobs_;
  std::size_t next_job_ = 0;
};

}  // namespace regen::share
