#include "regen/share/simulation/fleet.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "regen/share/scheduler/split.h"

namespace regen::share {
namespace {

constexpr Bytes kSplitParts = 4096;  // as the scheduler's

}  // namespace

Fleet::Fleet(const Trace& trace, const SimulationOptions& options)
    : trace_(trace), options_(options), jobs_(trace.jobs.size()) {
  for (std::int64_t i = 0; i < options.devices; ++i) {
    devices_.push_back({.turns = make_turns(options.policy, options.turn)});
  }
}

// Device time still to do.
Nanoseconds Fleet::left(std::size_t job) const {
  const FleetJob& state = jobs_[job];
  if (!inference(job)) return state.remaining;
  const std::int64_t at_work = state.pending.empty() ? 0 : 1;
  return state.remaining + (spec(job).steps - state.requests_done - at_work) * step_time(job);
}

Nanoseconds Fleet::rank(std::size_t job) const {
  const FleetJob& state = jobs_[job];
  if (options_.policy == Policy::kShortest) {
    if (!inference(job)) return state.remaining;
    return state.remaining + (std::ssize(state.pending) - 1) * step_time(job);
  }
  if (options_.policy != Policy::kDeadline) return 0;
  if (!spec(job).deadline) return kNever;
  return (inference(job) ? state.pending.front() : spec(job).arrival) + *spec(job).deadline;
}

bool Fleet::fits_whole(const FleetDevice& device, std::size_t job) const {
  Bytes sum = spec(job).points[best_point(spec(job))].bytes;
  for (const std::size_t other : device.jobs) {
    sum += spec(other).points[jobs_[other].point].bytes;
  }
  return sum <= options_.device_bytes;
}

bool Fleet::fits(const FleetDevice& device, std::size_t job) const {
  if (options_.policy == Policy::kFcfs && !device.jobs.empty()) return false;
  Bytes sum = fewest_bytes(spec(job));
  for (const std::size_t other : device.jobs) sum += fewest_bytes(spec(other));
  return sum <= options_.device_bytes;
}

Nanoseconds Fleet::load(const FleetDevice& device, Nanoseconds now) const {
  Nanoseconds sum = device.holder ? device.counted - now : 0;  // done since it was counted
  for (const std::size_t job : device.jobs) sum += left(job);
  return sum;
}

FleetDevice* Fleet::best_device(std::size_t job, Nanoseconds now) {
  FleetDevice* best = nullptr;
  std::pair<bool, Nanoseconds> best_key;
  for (FleetDevice& device : devices_) {
    if (!fits(device, job)) continue;
    const std::pair key(!fits_whole(device, job), load(device, now));
    if (best != nullptr && key >= best_key) continue;
    best = &device;
    best_key = key;
  }
  return best;
}

Nanoseconds Fleet::urgency(std::size_t job) const {
  switch (options_.policy) {
    case Policy::kPriority:
      return -spec(job).priority;
    case Policy::kDeadline:
      return spec(job).deadline ? spec(job).arrival + *spec(job).deadline : kNever;
    case Policy::kShortest:
      return least_time(spec(job));
    default:
      return 0;
  }
}

// Stable: of equals, the one that came first.
std::vector<std::size_t> Fleet::by_urgency(std::vector<std::size_t> waiting) const {
  std::stable_sort(waiting.begin(), waiting.end(),
                   [this](std::size_t a, std::size_t b) { return urgency(a) < urgency(b); });
  return waiting;
}

bool Fleet::shrunk(const FleetDevice& device) const {
  return std::any_of(device.jobs.begin(), device.jobs.end(),
                     [this](std::size_t job) { return jobs_[job].point != best_point(spec(job)); });
}

// The smallest points fit for certain; they serve where the rounding of split() leaves no other.
void Fleet::divide(FleetDevice& device) {
  std::vector<SplitJob> parts;
  for (const std::size_t job : device.jobs) {
    const std::int64_t level = options_.policy == Policy::kPriority ? spec(job).priority : 0;
    parts.push_back({level, spec(job).points});
  }
  const Bytes granule = std::max<Bytes>(1, options_.device_bytes / kSplitParts);
  const auto chosen = split(parts, options_.device_bytes, granule);
  for (std::size_t i = 0; i < device.jobs.size(); ++i) {
    set_point(device.jobs[i], chosen.ok() ? chosen->chosen[i] : smallest_point(device.jobs[i]));
  }
}

std::size_t Fleet::smallest_point(std::size_t job) const {
  const auto& points = spec(job).points;
  const auto smaller = [](const MemoryPoint& a, const MemoryPoint& b) {
    return std::pair(a.bytes, a.time) < std::pair(b.bytes, b.time);
  };
  return static_cast<std::size_t>(std::min_element(points.begin(), points.end(), smaller) -
                                  points.begin());
}

void Fleet::set_point(std::size_t job, std::size_t point) {
  FleetJob& state = jobs_[job];
  if (state.point == point) return;
  const long double ratio = static_cast<long double>(spec(job).points[point].time) /
                            static_cast<long double>(step_time(job));
  if (state.remaining > 0) {
    state.remaining =
        std::max<Nanoseconds>(1, std::llround(static_cast<long double>(state.remaining) * ratio));
  }
  state.point = point;
}

}  // namespace regen::share
