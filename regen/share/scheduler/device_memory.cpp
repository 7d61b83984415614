#include "regen/share/scheduler/device_memory.h"

#include <algorithm>
#include <utility>

namespace regen::share {
namespace {

constexpr std::uint32_t kGenerations = 256;

}  // namespace

// --- The place of each job

// With `job` as `changed`, new or instead of the one there.
Result<std::map<JobId, Place>> DeviceMemory::places_with(JobId changed, const Job* job) const {
  std::map<JobId, const Job*> all;
  for (const auto& [id, present] : jobs_) all[id] = &present;
  if (job != nullptr) all[changed] = job;
  // The jobs that newcomers, or the job that needs more, may put away.
  std::int64_t highest = -1;
  for (const auto& [id, present] : all) {
    if (!present->admitted || id == changed) highest = std::max(highest, present->demand.priority);
  }
  std::vector<Demand> demands;
  for (const auto& [id, present] : all) {
    demands.push_back(present->demand);
    // It left in the middle of a step, and can change its plan only at the end of it.
    if (present->away) demands.back().choices = {{.bytes = present->full, .time = 0}};
    demands.back().may_be_away =
        present->deepest == Depth::kLeave && present->admitted && id != changed &&
        (present->away || present->place.away || present->demand.priority < highest);
  }
  REGEN_ASSIGN(const std::vector<Place> found, arrange(demands, capacity_));
  std::map<JobId, Place> places;
  for (std::size_t at = 0; const auto& [id, present] : all) places[id] = found[at++];
  return places;
}

void DeviceMemory::take_places(const std::map<JobId, Place>& places) {
  for (auto& [id, job] : jobs_) job.place = places.at(id);
  dirty_ = true;
}

void DeviceMemory::rearrange() {
  look_again();
  if (closed_) return;
  const auto places = places_with(JobId::none(), nullptr);
  if (places.ok()) take_places(*places);  // else they keep what they have
}

Status DeviceMemory::check(const Demand& demand) const {
  const Job newcomer{.demand = demand};
  const auto places = places_with(JobId::none(), &newcomer);
  return places.ok() ? Status() : Status(places.error());
}

// --- What happens

Status DeviceMemory::request(JobId id, const Demand& demand, Depth deepest) {
  const Job newcomer{.demand = demand, .deepest = deepest};
  REGEN_ASSIGN(const auto places, places_with(id, &newcomer));
  jobs_.emplace(id, newcomer);
  take_places(places);
  return {};
}

Status DeviceMemory::readmit(JobId id, const Demand& demand, Depth deepest, Bytes full,
                             Bytes held) {
  full = std::max({full, held, least_bytes(demand)});
  Job job{.demand = demand, .deepest = deepest, .admitted = true};
  job.limit.bytes = full;
  job.place.limit = full;
  job.full = full;
  job.held = job.used = held;
  if (held > free()) {
    return infeasible("it has " + format_grouped(held) + " bytes there, expected at most the " +
                      format_grouped(free()) + " that no other job has");
  }
  if (!all_can_return(job, full)) {
    if (deepest != Depth::kLeave) {
      return infeasible("its plan of " + format_grouped(full) +
                        " bytes does not fit beside those of the others any more, expected room");
    }
    job.away = job.place.away = true;
  }
  jobs_.emplace(id, job);
  orders_.push_back({id, Order::Kind::kLimit, job.limit});
  orders_.push_back({id, Order::Kind::kAdmit});
  rearrange();
  return {};
}

Status DeviceMemory::change(JobId id, const Demand& demand, Depth deepest) {
  Job changed = jobs_.at(id);
  changed.demand = demand;
  changed.deepest = deepest;
  changed.update_confirmed = false;
  REGEN_ASSIGN(const auto places, places_with(id, &changed));
  Job& present = jobs_.at(id);
  std::swap(present, changed);
  // A job in the middle of a step, with its memory on the host, must still be able to end it.
  if (!present.away && !all_can_return(present, present.full)) {
    std::swap(present, changed);
    return infeasible("its parked bytes grow from " + format_grouped(parked(present)) + " to " +
                      format_grouped(parked_bytes(demand, present.full)) +
                      ", expected no more than leave room for the jobs that take turns");
  }
  take_places(places);
  return {};
}

void DeviceMemory::remove(JobId id) {
  jobs_.erase(id);
  if (holder_ == id) holder_.reset();
  std::erase_if(orders_, [id](const Order& order) { return order.job == id; });
  std::erase(changed_, id);
  rearrange();
}

void DeviceMemory::confirm(JobId id, std::uint32_t generation, Bytes used) {
  Job& job = jobs_.at(id);
  job.used = used;
  look_again();
  if (generation != job.limit.generation || used > job.limit.bytes) return;
  job.full = std::min(job.full, job.limit.bytes);
  job.held = std::min(job.held, job.full);
}

bool DeviceMemory::made_room(JobId id, Bytes left) {
  Job& job = jobs_.at(id);
  const bool left_all = job.asked == Depth::kLeave;
  job.asked.reset();
  parked(id, left);
  if (job.place.away && left_all) job.away = true;
  job.cannot_move = !left_all && job.held > parked_bytes(job.demand, job.full);
  return !job.cannot_move;
}

void DeviceMemory::forgive(JobId id) {
  jobs_.at(id).cannot_move = false;
  look_again();
}

// Bytes may be free that were not, or a job may be asked that was not able to.
void DeviceMemory::look_again() {
  for (auto& [id, job] : jobs_) job.stuck = false;
  dirty_ = true;
}

void DeviceMemory::parked(JobId id, Bytes left) {
  Job& job = jobs_.at(id);
  job.used = left;
  job.held = std::min(left, job.full);
  if (job.place.away && left == 0) job.away = true;
  look_again();
}

void DeviceMemory::set_closed(bool closed) {
  closed_ = closed;
  if (!closed) rearrange();
}

void DeviceMemory::set_holder(std::optional<JobId> holder) {
  if (holder != holder_ && unsettled_) dirty_ = true;
  if (holder != holder_ && anyone_stuck()) look_again();
  holder_ = holder;
}

// --- What is there

Bytes DeviceMemory::free() const {
  Bytes rest = capacity_;
  for (const auto& [id, job] : jobs_) rest -= std::max(job.held, job.used);
  return rest;
}

Bytes DeviceMemory::parked(const Job& job) const {
  if (!job.admitted) return 0;
  return job.away ? job.held : parked_bytes(job.demand, job.full);
}

// With `instead` in place of the job of that address, or beside all others, at `full` bytes.
bool DeviceMemory::all_can_return(const Job& instead, Bytes full) const {
  Bytes stays = parked_bytes(instead.demand, full);
  Bytes room = full - stays;
  for (const auto& [id, job] : jobs_) {
    if (&job == &instead) continue;
    stays += parked(job);
    if (job.admitted && !job.away) room = std::max(room, job.full - parked(job));
  }
  return stays + room <= capacity_;
}

// Whether so much is free. If not, those with the lowest priority are asked first.
bool DeviceMemory::secure(Bytes need, const Job& beneficiary) {
  Bytes expected = free();
  if (need <= expected) return true;
  std::vector<Entry*> able;
  for (Entry& entry : jobs_) {
    Job& job = entry.second;
    const Bytes gives = job.held - parked(job);
    if (&job == &beneficiary || entry.first == holder_ || !job.demand.can_spill || gives <= 0) {
      continue;
    }
    if (job.asked) expected += gives;
    if (!job.asked && !job.place.away && !job.cannot_move) able.push_back(&entry);
  }
  std::stable_sort(able.begin(), able.end(), [](const Entry* a, const Entry* b) {
    return a->second.demand.priority < b->second.demand.priority;
  });
  for (auto next = able.begin(); next != able.end() && expected < need; ++next) {
    auto& [id, job] = **next;
    expected += job.held - parked(job);
    ask(id, job, Depth::kSpill);
  }
  return false;
}

// --- Orders

void DeviceMemory::ask(JobId id, Job& job, Depth depth) {
  job.asked = depth;
  orders_.push_back({.job = id, .kind = Order::Kind::kMakeRoom, .depth = depth});
  dirty_ = true;
}

void DeviceMemory::announce_limit(JobId id, Job& job, Bytes bytes) {
  if (bytes != job.limit.bytes) job.limit.generation = (job.limit.generation + 1) % kGenerations;
  job.limit.bytes = bytes;
  orders_.push_back({id, Order::Kind::kLimit, job.limit});
}

bool DeviceMemory::make_ready(JobId id) {
  Job& job = jobs_.at(id);
  if (job.asked || job.away || job.place.away) return false;
  if (!secure(job.full - job.held, job)) {
    job.stuck = !anyone_asked();  // else the device would wait with it
    dirty_ |= job.stuck;
    return false;
  }
  job.held = job.full;
  job.cannot_move = false;
  dirty_ = true;
  return true;
}

bool DeviceMemory::anyone_asked() const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [](const auto& entry) { return entry.second.asked.has_value(); });
}

bool DeviceMemory::anyone_stuck() const {
  return std::any_of(jobs_.begin(), jobs_.end(),
                     [](const auto& entry) { return entry.second.stuck; });
}

void DeviceMemory::settle() {
  if (!std::exchange(dirty_, false)) return;
  if (!closed_) {
    come_back();
    shrink();
    put_away();
    admit();
    grow();
    announce_depths();
  }
  note_changes();
}

void DeviceMemory::come_back() {
  for (auto& [id, job] : jobs_) {
    if (job.away && !job.place.away && all_can_return(job, job.full)) job.away = false;
  }
}

void DeviceMemory::shrink() {
  for (auto& [id, job] : jobs_) {
    if (job.admitted && !job.place.away && job.place.limit < job.limit.bytes) {
      announce_limit(id, job, job.place.limit);
    }
  }
}

void DeviceMemory::put_away() {
  for (auto& [id, job] : jobs_) {
    if (!job.place.away || job.away || job.asked || job.cannot_move || id == holder_) continue;
    if (job.held == 0) {
      job.away = true;
    } else {
      ask(id, job, Depth::kLeave);
    }
  }
}

void DeviceMemory::admit() {
  std::vector<Entry*> waiting;
  for (Entry& entry : jobs_) {
    if (!entry.second.admitted) waiting.push_back(&entry);
  }
  std::stable_sort(waiting.begin(), waiting.end(), [](const Entry* a, const Entry* b) {
    return a->second.demand.priority > b->second.demand.priority;
  });
  for (Entry* entry : waiting) {
    auto& [id, job] = *entry;
    const Bytes full = job.place.limit;
    const Bytes needs = parked_bytes(job.demand, full);
    if (!all_can_return(job, full) || !secure(needs, job)) continue;
    job.admitted = true;
    job.full = full;
    job.held = needs;
    announce_limit(id, job, full);
    orders_.push_back({id, Order::Kind::kAdmit});
  }
}

void DeviceMemory::grow() {
  for (auto& [id, job] : jobs_) {
    if (!job.admitted || job.place.away) continue;
    const Bytes full = std::max(job.full, job.place.limit);
    if (job.place.limit > job.limit.bytes && all_can_return(job, full)) {
      const bool resident = job.held == job.full && !job.away;
      if (!resident || secure(full - job.held, job)) {
        if (resident) job.held = full;
        job.full = full;
        announce_limit(id, job, job.place.limit);
      }
    }
    if (!job.update_confirmed && job.limit.bytes >= least_bytes(job.demand)) {
      job.update_confirmed = true;
      orders_.push_back({id, Order::Kind::kUpdated});
    }
  }
}

// A job that goes idle should not block the jobs that take turns.
void DeviceMemory::announce_depths() {
  Bytes all = 0;
  for (const auto& [id, job] : jobs_) {
    if (!job.away) all += job.admitted ? job.full : job.place.limit;
  }
  in_turns_ = all > capacity_;
  for (auto& [id, job] : jobs_) {
    const Depth park = job.place.away                      ? Depth::kLeave
                       : in_turns_ && job.demand.can_spill ? Depth::kSpill
                                                           : Depth::kPause;
    if (!job.admitted || park == job.limit.park) continue;
    job.limit.park = park;
    orders_.push_back({id, Order::Kind::kLimit, job.limit});
  }
}

void DeviceMemory::note_changes() {
  unsettled_ = false;
  for (auto& [id, job] : jobs_) {
    unsettled_ |= !job.admitted || job.away != job.place.away ||
                  (!job.place.away && job.limit.bytes != job.place.limit);
    const Access now = access(id);
    const std::int64_t urgent = urgency(id);
    if (!job.admitted || (now == job.seen_access && urgent == job.seen_urgency)) continue;
    job.seen_access = now;
    job.seen_urgency = urgent;
    changed_.push_back(id);
  }
}

Access DeviceMemory::access(JobId id) const {
  const Job& job = jobs_.at(id);
  if (job.away || job.place.away || job.stuck) return Access::kBarred;
  return job.held < job.full || job.asked ? Access::kParked : Access::kReady;
}

std::int64_t DeviceMemory::urgency(JobId id) const {
  const Job& shrinking = jobs_.at(id);
  std::int64_t highest = shrinking.demand.priority;
  if (shrinking.full <= shrinking.limit.bytes) return highest;
  for (const auto& [other, job] : jobs_) {
    if (!job.admitted) highest = std::max(highest, job.demand.priority);
  }
  return highest;
}

DeviceMemory::Facts DeviceMemory::facts(JobId id) const {
  const Job& job = jobs_.at(id);
  return {.limit = job.limit.bytes,
          .full = job.full,
          .held = std::max(job.held, job.used),
          .used = job.used,
          .shrinking = job.admitted && job.full > job.limit.bytes,
          .away = job.away,
          .making_room = job.asked.has_value()};
}

}  // namespace regen::share
