#include "regen/share/scheduler/scheduler.h"

#include <algorithm>

#include "regen/base/json_fields.h"
#include "regen/base/text.h"

namespace regen::share {
namespace {

// Where a change of the holder moves memory, a turn is worth so many times that.
constexpr Nanoseconds kTurnsOverMove = 10;
constexpr Nanoseconds kLongestTurn = 10'000'000'000;
// Before a job that could not move its memory is asked again; twice as long each time.
constexpr Nanoseconds kFirstAskPause = 1'000'000'000;
constexpr Nanoseconds kLongestAskPause = 60'000'000'000;

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

Scheduler::Scheduler(const std::vector<DeviceSpec>& devices, Nanoseconds turn,
                     const Patience& patience)
    : patience_(patience) {
  for (const DeviceSpec& device : devices) {
    devices_.push_back({device, DeviceQueue(turn, patience.holder), DeviceMemory(device.bytes)});
  }
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

Result<JobId> Scheduler::find_job(std::string_view name) const {
  std::vector<JobId> found;
  std::string names;
  for (const auto& [id, job] : jobs_) {
    if (job.spec.identity == name) return id;
    if (job.spec.name == name) found.push_back(id);
    names += (names.empty() ? "" : ", ") + job.spec.name;
  }
  if (found.size() == 1) return found[0];
  if (found.size() > 1) {
    return bad_input(std::to_string(found.size()) + " jobs have the name " + in_quotes(name) +
                     ", expected an identity (regen share status --json)");
  }
  return bad_input(
      "unknown job " + in_quotes(name) + ", expected " +
      (names.empty() ? "a job, but there is none" : "one of " + on_one_line(names, 300)));
}

Error Scheduler::no_room(const JobSpec& spec, std::size_t device, const Error& reason) const {
  const DeviceEntry& target = devices_[device];
  const Bytes held = target.memory.held();
  const auto count = std::count_if(jobs_.begin(), jobs_.end(), [device](const auto& entry) {
    return entry.second.device == device;
  });
  return {reason.code, "job " + in_quotes(spec.name) + " asks for " + format_grouped(spec.memory) +
                           " bytes on device " + in_quotes(target.spec.name) +
                           ", expected at most " + format_grouped(target.spec.bytes - held) + ": " +
                           format_count(static_cast<std::size_t>(count), "job") + " there have " +
                           format_grouped(held) + " of " + format_grouped(target.spec.bytes) +
                           "; " + reason.message};
}

Status Scheduler::check(const JobSpec& spec) const {
  REGEN_ASSIGN(const std::size_t device, find_device(spec.device));
  for (const auto& [id, job] : jobs_) {
    if (job.spec.identity != spec.identity || job.absent) continue;
    return bad_input("identity " + in_quotes(spec.identity) +
                     " is registered already, by process " + std::to_string(job.owner.process) +
                     ", expected one of its own for each job");
  }
  if (spec.again) return {};
  const Status fits = devices_[device].memory.check(demand_of(spec));
  return fits.ok() ? Status() : Status(no_room(spec, device, fits.error()));
}

Status Scheduler::enter(JobId id, const JobSpec& spec, DeviceMemory& memory) {
  if (!spec.again) return memory.request(id, demand_of(spec), spec.deepest);
  // One that does not say what it has has what it asked for.
  const bool known = spec.full_bytes > 0;
  return memory.readmit(id, demand_of(spec), spec.deepest, known ? spec.full_bytes : spec.memory,
                        known ? spec.held_bytes : spec.memory);
}

std::optional<JobId> Scheduler::expected(const std::string& identity) const {
  for (const auto& [id, job] : jobs_) {
    if (job.absent && job.spec.identity == identity) return id;
  }
  return std::nullopt;
}

std::vector<JobId> Scheduler::all_jobs() const {
  std::vector<JobId> all;
  for (const auto& [id, job] : jobs_) all.push_back(id);
  return all;
}

Result<JobId> Scheduler::add(JobSpec spec, const JobOwner& owner, Nanoseconds now) {
  REGEN_TRY(check(spec));
  REGEN_ASSIGN(const std::size_t device, find_device(spec.device));
  JobChange changed;
  const auto expected = std::find_if(jobs_.begin(), jobs_.end(), [&spec](const auto& entry) {
    return entry.second.absent && entry.second.spec.identity == spec.identity;
  });
  if (expected != jobs_.end()) {
    changed = expected->second.changed;
    apply(changed, spec);
    leave(expected->first, now);
  }
  const JobId id(next_job_);
  const Status entered = enter(id, spec, devices_[device].memory);
  if (!entered.ok()) return no_room(spec, device, entered.error());
  ++next_job_;
  jobs_.emplace(
      id,
      JobEntry{.spec = spec, .device = device, .owner = owner, .added = now, .changed = changed});
  settle(devices_[device], now);
  return id;
}

Result<JobId> Scheduler::expect(const JobTableEntry& entry, Nanoseconds now) {
  const JobSpec spec{.name = entry.name,
                     .identity = entry.identity,
                     .device = entry.device,
                     .memory = entry.bytes,
                     .again = true};
  const JobOwner owner(entry.process, entry.process_start, entry.user, entry.use_file);
  REGEN_ASSIGN(const JobId id, add(spec, owner, now));
  jobs_.at(id).absent = true;
  jobs_.at(id).changed = entry.changed;
  return id;
}

std::vector<JobTableEntry> Scheduler::job_table() const {
  std::vector<JobTableEntry> entries;
  for (const auto& [id, job] : jobs_) {
    if (!admitted(id)) continue;
    entries.push_back({.name = job.spec.name,
                       .identity = job.spec.identity,
                       .device = devices_[job.device].spec.name,
                       .process = job.owner.process,
                       .process_start = job.owner.process_start,
                       .process_namespace = process_namespace(),
                       .user = job.owner.user,
                       .use_file = job.owner.use_file,
                       .bytes = memory_of(id).facts(id).full,
                       .changed = job.changed});
  }
  return entries;
}

void Scheduler::leave(JobId job, Nanoseconds now) {
  DeviceEntry& device = devices_[jobs_.at(job).device];
  if (device.memory.admitted(job)) device.queue.remove(job, now);
  device.memory.remove(job);
  jobs_.erase(job);
  std::erase_if(orders_, [job](const Order& order) { return order.job == job; });
}

void Scheduler::remove(JobId job, Nanoseconds now) {
  DeviceEntry& device = devices_[jobs_.at(job).device];
  if (device.memory.admitted(job) && !jobs_.at(job).absent) ++device.finished;
  leave(job, now);
  settle(device, now);
}

void Scheduler::want(JobId job, Nanoseconds now) {
  queue_of(job).want(job, now);
  settle(job, now);
}

Status Scheduler::yield(JobId job, Nanoseconds now) {
  if (queue_of(job).state(job) != JobState::kHolding) {
    return bad_input("job " + in_quotes(jobs_.at(job).spec.name) +
                     " yields a device that it does not hold, expected acquire first");
  }
  queue_of(job).yield(job, now);
  settle(job, now);
  return {};
}

void Scheduler::rest(JobId job, std::optional<Bytes> left, Nanoseconds now) {
  if (left) memory_of(job).parked(job, *left);
  queue_of(job).rest(job, now);
  settle(job, now);
}

Status Scheduler::update(JobId job, const Curve& curve, Nanoseconds now) {
  JobEntry& entry = jobs_.at(job);
  JobSpec spec = entry.spec;
  apply(curve, spec);
  REGEN_TRY(check_memory(spec));
  const Status done = memory_of(job).change(job, demand_of(spec), spec.deepest);
  if (!done.ok()) return no_room(spec, entry.device, done.error());
  entry.spec = spec;
  settle(job, now);
  return {};
}

void Scheduler::confirm(JobId job, std::uint32_t generation, Bytes used, Nanoseconds now) {
  memory_of(job).confirm(job, generation, used);
  settle(job, now);
}

Result<std::optional<Nanoseconds>> Scheduler::made_room(JobId job, Bytes left, Nanoseconds now) {
  JobEntry& entry = jobs_.at(job);
  if (!entry.asked_at) {
    return bad_input("job " + in_quotes(entry.spec.name) +
                     " made room without being asked, expected an order to do so first");
  }
  const Nanoseconds took = std::max<Nanoseconds>(0, now - *entry.asked_at);
  queue_of(job).set_least_turn(
      std::min(kLongestTurn, kTurnsOverMove * std::min(took, kLongestTurn)));
  entry.asked_at.reset();
  const bool whole = memory_of(job).made_room(job, left);
  entry.ask_pause = whole ? 0 : std::clamp(2 * entry.ask_pause, kFirstAskPause, kLongestAskPause);
  entry.ask_again_at = whole ? std::nullopt : std::optional(now + entry.ask_pause);
  settle(job, now);
  return whole ? std::nullopt : std::optional(entry.ask_pause);
}

void Scheduler::note_requests(JobId job, const RequestTimes& times, Nanoseconds now) {
  jobs_.at(job).requests = times;
  jobs_.at(job).requests_at = now;
}

Status Scheduler::change(std::string_view name, const JobChange& change, Nanoseconds now) {
  REGEN_ASSIGN(const JobId job, find_job(name));
  JobEntry& entry = jobs_.at(job);
  JobSpec spec = entry.spec;
  apply(change, spec);
  REGEN_TRY(check_memory(spec));
  if (!admitted(job)) {
    return bad_input("job " + in_quotes(name) + " waits for memory, expected one that is admitted");
  }
  const Status done = memory_of(job).change(job, demand_of(spec), spec.deepest);
  if (!done.ok()) return no_room(spec, entry.device, done.error());
  entry.spec = spec;
  entry.changed = entry.changed + change;
  queue_of(job).set_claim(job, memory_of(job).urgency(job), spec.weight, now);
  settle(job, now);
  return {};
}

void Scheduler::advance(Nanoseconds now) {
  for (DeviceEntry& device : devices_) {
    device.queue.advance(now);
    settle(device, now);
  }
  ask_again(now);
  expire(now);
}

void Scheduler::ask_again(Nanoseconds now) {
  for (auto& [id, job] : jobs_) {
    if (!job.ask_again_at || now < *job.ask_again_at) continue;
    job.ask_again_at.reset();
    memory_of(id).forgive(id);
    settle(id, now);
  }
}

void Scheduler::expire(Nanoseconds now) {
  if (patience_.newcomer == kNever) return;
  for (auto& [id, job] : jobs_) {
    if (job.expired || admitted(id) || now - job.added < patience_.newcomer) continue;
    job.expired = true;
    orders_.push_back({id, Order::Kind::kExpire});
  }
}

void Scheduler::set_closed(std::size_t device, bool closed, Nanoseconds now) {
  devices_[device].memory.set_closed(closed);
  devices_[device].queue.set_closed(closed, now);
  settle(devices_[device], now);
}

void Scheduler::set_closed(bool closed, Nanoseconds now) {
  for (std::size_t device = 0; device < devices_.size(); ++device) set_closed(device, closed, now);
}

// Turns follow memory, and memory follows turns, until neither has more to say.
void Scheduler::settle(DeviceEntry& device, Nanoseconds now) {
  do {
    for (const Order& order : device.queue.take_orders()) orders_.push_back(order);
    device.memory.set_holder(device.queue.holder());
    device.memory.settle();
  } while (follow_memory(device, now));
}

bool Scheduler::follow_memory(DeviceEntry& device, Nanoseconds now) {
  const auto orders = device.memory.take_orders();
  for (const Order& order : orders) follow(device, order, now);
  const auto changed = device.memory.take_changed();
  for (JobId job : changed) {
    device.queue.set_claim(job, device.memory.urgency(job), jobs_.at(job).spec.weight, now);
    device.queue.set_access(job, device.memory.access(job), now);
  }
  const auto blocked = device.queue.blocked();
  const bool ready = blocked && device.memory.make_ready(*blocked);
  if (!device.memory.in_turns()) device.queue.set_least_turn(0);
  return ready || !orders.empty() || !changed.empty() || device.memory.has_orders();
}

void Scheduler::follow(DeviceEntry& device, const Order& order, Nanoseconds now) {
  JobEntry& job = jobs_.at(order.job);
  if (order.kind == Order::Kind::kAdmit) {
    job.added = now;
    device.queue.add(order.job, {job.spec.priority, job.spec.weight, job.spec.deadline}, now);
  }
  if (order.kind == Order::Kind::kMakeRoom) job.asked_at = now;
  orders_.push_back(order);
}

std::vector<LeaseView> Scheduler::holders() const {
  std::vector<LeaseView> found;
  for (const DeviceEntry& device : devices_) {
    const auto holder = device.queue.holder();
    if (!holder) continue;
    const bool others = device.queue.waiting() > 0 || device.memory.facts(*holder).shrinking;
    found.push_back({*holder, others, device.queue.outranks_all(*holder)});
  }
  return found;
}

std::optional<Nanoseconds> Scheduler::next_event() const {
  std::optional<Nanoseconds> next;
  const auto take = [&next](Nanoseconds event) { next = std::min(next.value_or(event), event); };
  for (const DeviceEntry& device : devices_) {
    if (const auto event = device.queue.next_event()) take(*event);
  }
  for (const auto& [id, job] : jobs_) {
    if (job.ask_again_at) take(*job.ask_again_at);
  }
  if (patience_.newcomer == kNever) return next;
  for (const auto& [id, job] : jobs_) {
    if (!job.expired && !admitted(id)) take(job.added + patience_.newcomer);
  }
  return next;
}

Error Scheduler::expiry(JobId id, Nanoseconds now) const {
  const JobEntry& job = jobs_.at(id);
  std::string debtors;
  for (const auto& [other, entry] : jobs_) {
    if (entry.device != job.device || !admitted(other)) continue;
    const auto facts = memory_of(other).facts(other);
    if (!facts.shrinking && !facts.making_room) continue;
    debtors += (debtors.empty() ? "" : ", ") + in_quotes(entry.spec.name) + " has " +
               format_grouped(facts.held) + " bytes of " + format_grouped(facts.limit);
  }
  return limit_reached("job " + in_quotes(job.spec.name) + " waited " +
                       format_exact(to_seconds(now - job.added)) + " s for memory on device " +
                       in_quotes(devices_[job.device].spec.name) +
                       ", expected others to give theirs back: " +
                       (debtors.empty() ? "no job was asked" : on_one_line(debtors, 300)));
}

JobStatus Scheduler::job_status(JobId id, const JobEntry& job, Nanoseconds now) const {
  const DeviceQueue& queue = devices_[job.device].queue;
  const auto facts = memory_of(id).facts(id);
  JobStatus status{.name = job.spec.name,
                   .identity = job.spec.identity,
                   .process = job.owner.process,
                   .user = job.owner.user,
                   .priority = job.spec.priority,
                   .weight = job.spec.weight,
                   .deadline = job.spec.deadline,
                   .memory = job.spec.memory,
                   .least_bytes = least_bytes(job.spec),
                   .persistent_bytes = job.spec.persistent_bytes,
                   .deepest = job.spec.deepest,
                   .limit_bytes = facts.limit,
                   .held_bytes = facts.held,
                   .used_bytes = facts.used,
                   .memory_state = job.absent          ? "absent"
                                   : facts.away        ? "away"
                                   : facts.making_room ? "making room"
                                   : facts.shrinking   ? "shrinking"
                                                       : "settled",
                   .age = std::max<Nanoseconds>(0, now - job.added)};
  if (!admitted(id)) return status;
  status.state = queue.state(id);
  status.asked_to_give_way = queue.holder() == id && queue.asked_to_give_way();
  status.counts = queue.counts(id, now);
  status.waits = queue.waits(id, now);
  if (!job.requests) return status;
  status.requests = job.requests->count;
  // What a job said long ago does not hold any more.
  if (now - job.requests_at < 2 * RecentTimes::kPeriod) status.request_times = job.requests->recent;
  return status;
}

std::vector<DeviceStatus> Scheduler::status(Nanoseconds now) const {
  std::vector<DeviceStatus> result;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const DeviceEntry& device = devices_[i];
    DeviceStatus status{.name = device.spec.name,
                        .bytes = device.spec.bytes,
                        .used_bytes = device.memory.held(),
                        .busy = device.queue.busy(now),
                        .turns = device.queue.grants(),
                        .asked_for = device.queue.asked_for(now),
                        .in_turns = device.memory.in_turns(),
                        .finished_jobs = device.finished};
    for (const auto& [id, job] : jobs_) {
      if (job.device != i) continue;
      (admitted(id) ? status.jobs : status.newcomers).push_back(job_status(id, job, now));
    }
    result.push_back(std::move(status));
  }
  return result;
}

}  // namespace regen::share
