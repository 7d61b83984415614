// All devices of a machine and the jobs on them: admission by memory (device_memory.h), then turns
// (device_queue.h). It does no input or output and reads no clock; the caller passes the time and
// carries out its orders.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/share/protocol/job.h"
#include "regen/share/report/request_times.h"
#include "regen/share/report/status.h"
#include "regen/share/scheduler/device_memory.h"
#include "regen/share/scheduler/device_queue.h"
#include "regen/share/scheduler/job_table.h"

namespace regen::share {

struct DeviceSpec {
  std::string name;
  Bytes bytes = 0;

  bool operator==(const DeviceSpec&) const = default;
};

// "gpu0:80GiB".
Result<DeviceSpec> parse_device(std::string_view text);

// How long things take; kNever where there is no end.
struct Patience {
  Nanoseconds holder = kNever;    // with a holder that is asked to give way
  Nanoseconds newcomer = kNever;  // of a newcomer that waits for memory
};

// The process that a job is.
struct JobOwner {
  // For callers that have no more than a number.
  JobOwner(std::int64_t number)  // NOLINT(google-explicit-constructor)
      : process(number), process_start(share::process_start(number).value_or(0)) {}
  JobOwner(std::int64_t number, std::uint64_t start, std::int64_t its_user, std::int64_t file)
      : process(number), process_start(start), user(its_user), use_file(file) {}

  std::int64_t process = 0;
  std::uint64_t process_start = 0;
  std::int64_t user = kUnknownUser;
  std::int64_t use_file = 0;  // JobTableEntry::use_file
};

// What the holder of a device is shown about other jobs.
struct LeaseView {
  JobId job;
  bool wanted = false;        // another job waits for the device
  bool outranks_all = false;  // DeviceQueue::outranks_all
};

class Scheduler {
 public:
  // At least one device, names different.
  Scheduler(const std::vector<DeviceSpec>& devices, Nanoseconds turn,
            const Patience& patience = {});

  // The error that add() would give; nothing changes.
  Status check(const JobSpec& spec) const;
  // The job is a newcomer until an order says that it is admitted, which may be at once; it then
  // starts idle.
  Result<JobId> add(JobSpec spec, const JobOwner& owner, Nanoseconds now);
  // The job of the former daemon with this identity, if it has not come back.
  std::optional<JobId> expected(const std::string& identity) const;
  // A job of a former daemon: its bytes are reserved until it comes back with its identity, or is
  // removed.
  Result<JobId> expect(const JobTableEntry& entry, Nanoseconds now);
  // What must outlive this daemon.
  std::vector<JobTableEntry> job_table() const;
  // Newcomers too: requests to other jobs on their behalf are withdrawn.
  void remove(JobId job, Nanoseconds now);
  bool admitted(JobId job) const { return memory_of(job).admitted(job); }

  // Of admitted jobs.
  void want(JobId job, Nanoseconds now);
  // Refused unless the job holds its device.
  Status yield(JobId job, Nanoseconds now);
  // `left`: what it still has on the device, if it made room by itself.
  void rest(JobId job, std::optional<Bytes> left, Nanoseconds now);
  // What the job needs, once it has planned; an order says when its limit fits.
  Status update(JobId job, const Curve& curve, Nanoseconds now);
  void confirm(JobId job, std::uint32_t generation, Bytes used, Nanoseconds now);
  // Refused unless the job was asked to. A job that has moved less than asked is asked again only
  // after a while, which doubles: asking at once would change nothing, and others wait meanwhile.
  // Returns how long that is; nothing when all has moved.
  Result<std::optional<Nanoseconds>> made_room(JobId job, Bytes left, Nanoseconds now);

  // What an admitted job says about the requests that it answers; nothing depends on it.
  void note_requests(JobId job, const RequestTimes& times, Nanoseconds now);

  // By name or identity, for an operator. An error changes nothing.
  Status change(std::string_view job, const JobChange& change, Nanoseconds now);

  void advance(Nanoseconds now);
  // While closed nothing is granted and no memory changes hands.
  void set_closed(bool closed, Nanoseconds now);
  void set_closed(std::size_t device, bool closed, Nanoseconds now);

  std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  std::vector<LeaseView> holders() const;
  std::optional<Nanoseconds> next_event() const;
  std::vector<DeviceStatus> status(Nanoseconds now) const;
  // Why a newcomer is out (Order::Kind::kExpire).
  Error expiry(JobId job, Nanoseconds now) const;

  std::size_t jobs() const { return jobs_.size(); }
  const JobSpec& spec(JobId job) const { return jobs_.at(job).spec; }
  std::size_t device_index(JobId job) const { return jobs_.at(job).device; }
  std::int64_t process(JobId job) const { return jobs_.at(job).owner.process; }
  const JobOwner& owner(JobId job) const { return jobs_.at(job).owner; }
  Bytes full_bytes(JobId job) const { return memory_of(job).facts(job).full; }
  std::vector<JobId> all_jobs() const;
  Result<JobId> find_job(std::string_view name) const;
  Result<std::size_t> find_device(std::string_view name) const;

 private:
  struct DeviceEntry {
    DeviceSpec spec;
    DeviceQueue queue;
    DeviceMemory memory;
    std::int64_t finished = 0;
  };
  struct JobEntry {
    JobSpec spec;
    std::size_t device = 0;
    JobOwner owner = 0;
    Nanoseconds added = 0;
    JobChange changed = {};  // kept in the job table; the job itself does not know it
    bool absent = false;     // expected
    bool expired = false;
    std::optional<Nanoseconds> asked_at = {};      // to make room
    std::optional<Nanoseconds> ask_again_at = {};  // it moved less than it was asked to
    Nanoseconds ask_pause = 0;
    std::optional<RequestTimes> requests = {};
    Nanoseconds requests_at = 0;
  };

  Error no_room(const JobSpec& spec, std::size_t device, const Error& reason) const;
  void leave(JobId job, Nanoseconds now);
  Status enter(JobId id, const JobSpec& spec, DeviceMemory& memory);
  DeviceQueue& queue_of(JobId job) { return devices_[jobs_.at(job).device].queue; }
  DeviceMemory& memory_of(JobId job) { return devices_[jobs_.at(job).device].memory; }
  const DeviceMemory& memory_of(JobId job) const { return devices_[jobs_.at(job).device].memory; }
  void settle(JobId job, Nanoseconds now) { settle(devices_[jobs_.at(job).device], now); }
  void settle(DeviceEntry& device, Nanoseconds now);
  bool follow_memory(DeviceEntry& device, Nanoseconds now);
  void follow(DeviceEntry& device, const Order& order, Nanoseconds now);
  void expire(Nanoseconds now);
  void ask_again(Nanoseconds now);
  JobStatus job_status(JobId id, const JobEntry& job, Nanoseconds now) const;

  Patience patience_;
  std::vector<DeviceEntry> devices_;
  std::map<JobId, JobEntry> jobs_;
  std::vector<Order> orders_;
  std::size_t next_job_ = 0;
};

}  // namespace regen::share
