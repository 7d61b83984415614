#include "regen/share/scheduler/device_queue.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace regen::share {

// Clocks that are set back must not make time negative.
Nanoseconds DeviceQueue::at_least_last(Nanoseconds now) {
  last_ = std::max(last_, now);
  return last_;
}

Nanoseconds DeviceQueue::due(const Job& job) const {
  return job.claim.deadline ? job.wanted + *job.claim.deadline
                            : std::numeric_limits<Nanoseconds>::max();
}

double DeviceQueue::served(const Job& job, Nanoseconds now) const {
  const Nanoseconds present = job.state == JobState::kHolding ? now - job.since : 0;
  return job.served + static_cast<double>(present) / job.claim.weight;
}

// Whether `a` need not even wait for the end of b's turn.
bool DeviceQueue::urgent(const Job& a, const Job& b) const {
  if (a.claim.priority != b.claim.priority) return a.claim.priority > b.claim.priority;
  return due(a) < due(b);
}

bool DeviceQueue::before(const Job& a, const Job& b, Nanoseconds now) const {
  if (urgent(a, b)) return true;
  if (urgent(b, a)) return false;
  return std::pair(served(a, now), a.arrival) < std::pair(served(b, now), b.arrival);
}

const DeviceQueue::Job* DeviceQueue::best_waiting(Nanoseconds now) const {
  const Job* best = nullptr;
  for (const auto& [id, job] : jobs_) {
    if (job.state != JobState::kWaiting || job.access == Access::kBarred) continue;
    if (best == nullptr || before(job, *best, now)) best = &job;
  }
  return best;
}

// Where a job that was idle starts: with the least served of the jobs that wait for the device in its
// level, or where the last of them left.
double DeviceQueue::least_served(std::int64_t priority, Nanoseconds now) const {
  std::optional<double> least;
  for (const auto& [id, job] : jobs_) {
    if (job.claim.priority != priority || job.state == JobState::kIdle) continue;
    least = std::min(least.value_or(served(job, now)), served(job, now));
  }
  const auto floor = floor_.find(priority);
  return least ? *least : floor == floor_.end() ? 0 : floor->second;
}

void DeviceQueue::enter(Job& job, JobState state, Nanoseconds now) {
  const Nanoseconds spent = now - job.since;
  if (job.state == JobState::kHolding) {
    job.served = served(job, now);
    job.counts.used += spent;
    busy_ += spent;
  }
  if (job.state == JobState::kWaiting) {
    job.counts.waited += spent;
    job.counts.longest_wait = std::max(job.counts.longest_wait, spent);
  }
  job.state = state;
  job.since = now;
  if (state == JobState::kIdle) {
    double& floor = floor_[job.claim.priority];
    floor = std::max(floor, job.served);
  }
}

void DeviceQueue::add(JobId job, const Claim& claim, Nanoseconds now) {
  jobs_.emplace(job, Job{.claim = claim, .since = at_least_last(now)});
}

void DeviceQueue::remove(JobId job, Nanoseconds now) {
  rest(job, now);
  const std::int64_t level = jobs_.at(job).claim.priority;
  jobs_.erase(job);
  if (blocked_ == job) blocked_.reset();
  forget_empty_level(level);
  std::erase_if(orders_, [job](const Order& order) { return order.job == job; });
}

void DeviceQueue::forget_empty_level(std::int64_t level) {
  const bool empty = std::none_of(jobs_.begin(), jobs_.end(), [level](const auto& entry) {
    return entry.second.claim.priority == level;
  });
  if (empty) floor_.erase(level);
}

void DeviceQueue::want(JobId id, Nanoseconds now) {
  now = at_least_last(now);
  Job& job = jobs_.at(id);
  if (job.state != JobState::kIdle) return;
  job.served = std::max(job.served, least_served(job.claim.priority, now));
  job.wanted = now;
  job.arrival = arrivals_++;
  enter(job, JobState::kWaiting, now);
  settle(now);
}

void DeviceQueue::yield(JobId id, Nanoseconds now) {
  if (holder_ == id) release(id, JobState::kWaiting, at_least_last(now));
}

void DeviceQueue::rest(JobId id, Nanoseconds now) {
  now = at_least_last(now);
  if (holder_ == id) return release(id, JobState::kIdle, now);
  Job& job = jobs_.at(id);
  if (job.state == JobState::kIdle) return;
  enter(job, JobState::kIdle, now);
  settle(now);
}

void DeviceQueue::release(JobId id, JobState next, Nanoseconds now) {
  Job& job = jobs_.at(id);
  if (asked_at_ && next == JobState::kWaiting) ++job.counts.preemptions;
  enter(job, next, now);
  job.arrival = arrivals_++;
  holder_.reset();
  asked_at_.reset();
  hung_at_ = kNever;
  settle(now);
}

void DeviceQueue::set_claim(JobId id, std::int64_t priority, double weight, Nanoseconds now) {
  now = at_least_last(now);
  Job& job = jobs_.at(id);
  if (job.claim.priority == priority && job.claim.weight == weight) return;
  job.served = served(job, now);  // what is past counts by the old weight
  if (job.state == JobState::kHolding) {
    const Nanoseconds spent = now - job.since;
    job.counts.used += spent;
    busy_ += spent;
    job.since = now;
  }
  const std::int64_t left = std::exchange(job.claim.priority, priority);
  job.claim.weight = weight;
  if (left != priority) {
    const JobState state = std::exchange(job.state, JobState::kIdle);
    job.served = std::max(job.served, least_served(priority, now));
    job.state = state;
    forget_empty_level(left);
  }
  settle(now);
}

void DeviceQueue::set_access(JobId id, Access access, Nanoseconds now) {
  now = at_least_last(now);
  jobs_.at(id).access = access;
  settle(now);
}

void DeviceQueue::advance(Nanoseconds now) {
  settle(at_least_last(now));
}

void DeviceQueue::set_closed(bool closed, Nanoseconds now) {
  closed_ = closed;
  settle(at_least_last(now));
}

void DeviceQueue::settle(Nanoseconds now) {
  blocked_.reset();
  if (!holder_ && !closed_) grant_best(now);
  if (holder_) review_holder(now);
}

void DeviceQueue::grant_best(Nanoseconds now) {
  const Job* best = best_waiting(now);
  if (best == nullptr) return;
  const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                  [best](const auto& entry) { return &entry.second == best; });
  Job& job = found->second;
  if (job.access == Access::kParked) {
    blocked_ = found->first;
    return;
  }
  // A deadline is met by the first grant of a request; what follows a yield is the same request.
  if (job.claim.deadline && job.wanted == job.since && now > due(job)) {
    ++job.counts.missed_deadlines;
  }
  job.waits.add(now - job.since, now);
  enter(job, JobState::kHolding, now);
  ++job.counts.grants;
  ++grants_;
  holder_ = found->first;
  turn_end_ = now + std::max(turn_, least_turn_);
  orders_.push_back({found->first, Order::Kind::kGrant});
}

bool DeviceQueue::must_give_way(const Job& holder, const Job& rival, Nanoseconds now) const {
  if (urgent(rival, holder)) return true;
  return now >= turn_end_ && before(rival, holder, now);
}

// Asks the holder to give way, or takes that back when its reason is gone.
void DeviceQueue::review_holder(Nanoseconds now) {
  const Job& holder = jobs_.at(*holder_);
  const Job* rival = best_waiting(now);
  const bool ask =
      holder.access == Access::kBarred || (rival != nullptr && must_give_way(holder, *rival, now));
  if (ask != asked_at_.has_value()) set_asked(ask, now);
  if (now >= hung_at_) {
    orders_.push_back({*holder_, Order::Kind::kHung});
    hung_at_ = now + patience_;
  }
  // Still the least served: another turn.
  if (!ask && now >= turn_end_) turn_end_ = now + turn_;
}

void DeviceQueue::set_asked(bool asked, Nanoseconds now) {
  orders_.push_back({*holder_, asked ? Order::Kind::kGiveWay : Order::Kind::kGoOn});
  asked_at_ = asked ? std::optional(now) : std::nullopt;
  hung_at_ = asked && patience_ != kNever ? now + patience_ : kNever;
}

std::vector<Order> DeviceQueue::take_orders() {
  return std::exchange(orders_, {});
}

std::optional<Nanoseconds> DeviceQueue::next_event() const {
  if (asked_at_ && hung_at_ != kNever) return hung_at_;
  if (!holder_ || asked_at_ || best_waiting(last_) == nullptr) return std::nullopt;
  return turn_end_;
}

Nanoseconds DeviceQueue::asked_for(Nanoseconds now) const {
  return asked_at_ ? std::max<Nanoseconds>(0, now - *asked_at_) : 0;
}

std::size_t DeviceQueue::waiting() const {
  return static_cast<std::size_t>(std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return entry.second.state == JobState::kWaiting;
  }));
}

bool DeviceQueue::outranks_all(JobId id) const {
  const std::int64_t priority = jobs_.at(id).claim.priority;
  return std::none_of(jobs_.begin(), jobs_.end(), [id, priority](const auto& entry) {
    const Claim& other = entry.second.claim;
    if (entry.first == id || other.priority < priority) return false;
    return other.priority > priority || other.deadline.has_value();
  });
}

JobState DeviceQueue::state(JobId job) const {
  return jobs_.at(job).state;
}

JobCounts DeviceQueue::counts(JobId id, Nanoseconds now) const {
  const Job& job = jobs_.at(id);
  JobCounts counts = job.counts;
  const Nanoseconds present = std::max<Nanoseconds>(0, now - job.since);
  if (job.state == JobState::kHolding) counts.used += present;
  if (job.state == JobState::kWaiting) {
    counts.waited += present;
    counts.longest_wait = std::max(counts.longest_wait, present);
  }
  return counts;
}

std::optional<Percentiles> DeviceQueue::waits(JobId job, Nanoseconds now) const {
  return jobs_.at(job).waits.percentiles(now);
}

Nanoseconds DeviceQueue::busy(Nanoseconds now) const {
  return busy_ + (holder_ ? std::max<Nanoseconds>(0, now - jobs_.at(*holder_).since) : 0);
}

}  // namespace regen::share
