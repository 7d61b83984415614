#include "regen/share/scheduler.h"

#include <algorithm>

#include "regen/base/text.h"

namespace regen::share {
namespace {

// A split must be found while clients wait: bytes are counted in this many parts of the device.
constexpr Bytes kSplitParts = 4096;

}  // namespace

Result<DeviceSpec> parse_device(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::string expected = ", expected NAME:BYTES such as gpu0:80GiB";
  if (colon == std::string_view::npos || colon == 0 || colon > kMaxNameLength) {
    return bad_input("bad device " + in_quotes(text) + expected);
  }
  const auto bytes = parse_bytes(text.substr(colon + 1));
  if (!bytes.ok()) return bad_input("bad device " + in_quotes(text) + ": " + bytes.error().message);
  return DeviceSpec{std::string(text.substr(0, colon)), *bytes};
}

Scheduler::Scheduler(const std::vector<DeviceSpec>& devices, Nanoseconds turn) {
  for (const DeviceSpec& device : devices) devices_.push_back({device, DeviceQueue(turn)});
}

Result<std::size_t> Scheduler::find_device(std::string_view name) const {
  if (name.empty()) return std::size_t{0};
  std::string names;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].spec.name == name) return i;
    names += (names.empty() ? "" : ", ") + devices_[i].spec.name;
  }
  return bad_input("unknown device " + in_quotes(name) + ", expected one of " + names);
}

Bytes Scheduler::used_bytes(std::size_t device) const {
  Bytes sum = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.device == device) sum += job.spec.memory;
  }
  return sum;
}

Error Scheduler::no_room(const JobSpec& spec, std::size_t device) const {
  const DeviceSpec& target = devices_[device].spec;
  const Bytes used = used_bytes(device);
  const auto count = std::count_if(jobs_.begin(), jobs_.end(), [device](const auto& entry) {
    return entry.second.device == device;
  });
  const auto smaller = split_of(device, &spec);
  return infeasible("job " + in_quotes(spec.name) + " asks for " + format_grouped(spec.memory) +
                    " bytes on device " + in_quotes(target.name) + ", expected at most " +
                    format_grouped(target.bytes - used) + ": " +
                    format_count(static_cast<std::size_t>(count), "job") + " there have " +
                    format_grouped(used) + " of " + format_grouped(target.bytes) + "; " +
                    (smaller.ok() ? "all would fit with " + format_grouped(smaller->bytes) +
                                        " bytes by their trade-off points"
                                  : smaller.error().message));
}

Status Scheduler::check(const JobSpec& spec) const {
  REGEN_ASSIGN(const std::size_t device, find_device(spec.device));
  for (const auto& [id, job] : jobs_) {
    if (job.spec.identity != spec.identity) continue;
    return bad_input("identity " + in_quotes(spec.identity) +
                     " is registered already, by process " + std::to_string(job.process) +
                     ", expected one of its own for each job");
  }
  if (spec.memory > devices_[device].spec.bytes - used_bytes(device)) return no_room(spec, device);
  return {};
}

Result<JobId> Scheduler::add(const JobSpec& spec, std::int64_t process, Nanoseconds now) {
  REGEN_TRY(check(spec));
  REGEN_ASSIGN(const std::size_t device, find_device(spec.device));
  const JobId id(next_job_++);
  jobs_.emplace(id, JobEntry{spec, device, process, now});
  devices_[device].queue.add(id, {spec.priority, spec.weight, spec.deadline}, now);
  return id;
}

void Scheduler::remove(JobId job, Nanoseconds now) {
  DeviceEntry& device = devices_[jobs_.at(job).device];
  device.queue.remove(job, now);
  ++device.finished;
  jobs_.erase(job);
}

void Scheduler::want(JobId job, Nanoseconds now) {
  queue_of(job).want(job, now);
}

Status Scheduler::yield(JobId job, Nanoseconds now) {
  if (queue_of(job).state(job) != JobState::kHolding) {
    return bad_input("job " + in_quotes(jobs_.at(job).spec.name) +
                     " yields a device that it does not hold, expected acquire first");
  }
  queue_of(job).yield(job, now);
  return {};
}

void Scheduler::rest(JobId job, Nanoseconds now) {
  queue_of(job).rest(job, now);
}

void Scheduler::advance(Nanoseconds now) {
  for (DeviceEntry& device : devices_) device.queue.advance(now);
}

void Scheduler::set_closed(bool closed, Nanoseconds now) {
  for (DeviceEntry& device : devices_) device.queue.set_closed(closed, now);
}

std::vector<Order> Scheduler::take_orders() {
  std::vector<Order> orders;
  for (DeviceEntry& device : devices_) {
    for (const Order& order : device.queue.take_orders()) orders.push_back(order);
  }
  return orders;
}

std::vector<std::pair<JobId, bool>> Scheduler::holders() const {
  std::vector<std::pair<JobId, bool>> found;
  for (const DeviceEntry& device : devices_) {
    const auto holder = device.queue.holder();
    if (holder) found.emplace_back(*holder, device.queue.waiting() > 0);
  }
  return found;
}

std::optional<Nanoseconds> Scheduler::next_event() const {
  std::optional<Nanoseconds> next;
  for (const DeviceEntry& device : devices_) {
    const auto event = device.queue.next_event();
    if (event) next = std::min(next.value_or(*event), *event);
  }
  return next;
}

JobStatus Scheduler::job_status(JobId id, const JobEntry& job, Nanoseconds now) const {
  const DeviceQueue& queue = devices_[job.device].queue;
  return {.name = job.spec.name,
          .identity = job.spec.identity,
          .process = job.process,
          .priority = job.spec.priority,
          .weight = job.spec.weight,
          .deadline = job.spec.deadline,
          .memory = job.spec.memory,
          .least_bytes = least_bytes(job.spec),
          .state = queue.state(id),
          .asked_to_give_way = queue.holder() == id && queue.asked_to_give_way(),
          .age = std::max<Nanoseconds>(0, now - job.added),
          .counts = queue.counts(id, now)};
}

std::vector<DeviceStatus> Scheduler::status(Nanoseconds now) const {
  std::vector<DeviceStatus> result;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const DeviceEntry& device = devices_[i];
    DeviceStatus status{.name = device.spec.name,
                        .bytes = device.spec.bytes,
                        .used_bytes = used_bytes(i),
                        .busy = device.queue.busy(now),
                        .asked_for = device.queue.asked_for(now),
                        .finished_jobs = device.finished};
    for (const auto& [id, job] : jobs_) {
      if (job.device == i) status.jobs.push_back(job_status(id, job, now));
    }
    result.push_back(std::move(status));
  }
  return result;
}

Result<Split> Scheduler::split_of(std::size_t device, const JobSpec* newcomer) const {
  std::vector<SplitJob> parts;
  for (const auto& [id, job] : jobs_) {
    if (job.device == device) parts.push_back({job.spec.priority, choices(job.spec)});
  }
  if (newcomer != nullptr) parts.push_back({newcomer->priority, choices(*newcomer)});
  const Bytes capacity = devices_[device].spec.bytes;
  return split(parts, capacity, std::max<Bytes>(1, capacity / kSplitParts));
}

Result<Split> Scheduler::best_split(std::string_view device, const JobSpec* newcomer) const {
  REGEN_ASSIGN(const std::size_t index, find_device(device));
  return split_of(index, newcomer);
}

}  // namespace regen::share
