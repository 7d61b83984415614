#include "regen/share/scheduler/arrangement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "regen/share/scheduler/split.h"

namespace regen::share {
namespace {

// A split must be found while clients wait: bytes are counted in this many parts of what is to be
// divided, and at most so many sizes of the common room are tried.
constexpr Bytes kSplitParts = 2048;
constexpr std::size_t kMostRooms = 64;
constexpr std::size_t kFewestRooms = 8;
// What one arrangement may take: points of all jobs, times the sizes of the room that are tried. A crowd of
// jobs with many points is looked at more coarsely.
constexpr std::size_t kMostWork = 2048;
constexpr std::size_t kMostPointsOfAll = kMostWork / kFewestRooms;
constexpr std::size_t kFewestPoints = 2;

using Limits = std::vector<Bytes>;
using Demands = std::vector<const Demand*>;

const MemoryPoint& quickest(const Demand& job) {
  return *std::min_element(job.choices.begin(), job.choices.end(),
                           [](const auto& a, const auto& b) {
                             return std::tie(a.time, a.bytes) < std::tie(b.time, b.bytes);
                           });
}

Bytes sum_of(const Demands& jobs, const std::function<Bytes(const Demand&)>& bytes) {
  return std::accumulate(jobs.begin(), jobs.end(), Bytes{0},
                         [&](Bytes sum, const Demand* job) { return sum + bytes(*job); });
}

Bytes least_sum(const Demands& jobs) {
  return sum_of(jobs, [](const Demand& job) { return least_bytes(job); });
}

// The cheapest choice of one point for each. Only what is above the least bytes is counted in
// parts, so that least bytes that fit are never refused.
std::optional<Limits> side_by_side(const Demands& jobs, Bytes capacity) {
  const Bytes extra = capacity - least_sum(jobs);
  if (extra < 0) return std::nullopt;
  Limits limits;
  for (const Demand* job : jobs) limits.push_back(quickest(*job).bytes);
  if (std::accumulate(limits.begin(), limits.end(), Bytes{0}) <= capacity) return limits;
  std::vector<SplitJob> parts;
  for (const Demand* job : jobs) {
    parts.push_back({job->priority, job->choices});
    for (MemoryPoint& point : parts.back().points) point.bytes -= least_bytes(*job);
  }
  const auto best = split(parts, extra, std::max<Bytes>(1, extra / kSplitParts));
  if (!best.ok()) return std::nullopt;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    limits[i] = jobs[i]->choices[best->chosen[i]].bytes;
  }
  return limits;
}

// The quickest point that takes at most `room` above the persistent bytes.
const MemoryPoint* quickest_within(const Demand& job, Bytes room) {
  const MemoryPoint* best = nullptr;
  for (const MemoryPoint& point : job.choices) {
    if (point.bytes - job.persistent > room) continue;
    if (best == nullptr || std::tie(point.time, point.bytes) < std::tie(best->time, best->bytes)) {
      best = &point;
    }
  }
  return best;
}

// Sizes of the common room that are worth a try: what some job would use whole.
std::vector<Bytes> rooms(const Demands& spilling, std::size_t most) {
  std::set<Bytes> sizes;
  Bytes least = 0;
  for (const Demand* job : spilling) {
    least = std::max(least, least_bytes(*job) - job->persistent);
    for (const MemoryPoint& point : job->choices) sizes.insert(point.bytes - job->persistent);
  }
  std::vector<Bytes> all(sizes.lower_bound(least), sizes.end());
  if (all.size() <= most) return all;
  std::vector<Bytes> some;
  for (std::size_t i = 0; i < most; ++i) {
    some.push_back(all[i * (all.size() - 1) / (most - 1)]);
  }
  return some;
}

// Times by level, highest first, of the points with these bytes.
std::map<std::int64_t, Nanoseconds, std::greater<>> times_of(const Demands& jobs,
                                                             const Limits& limits) {
  std::map<std::int64_t, Nanoseconds, std::greater<>> times;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    Nanoseconds least = kNever;
    for (const MemoryPoint& point : jobs[i]->choices) {
      if (point.bytes == limits[i]) least = std::min(least, point.time);
    }
    times[jobs[i]->priority] += least;
  }
  return times;
}

std::optional<Limits> with_room(const Demands& jobs, Bytes capacity, Bytes room) {
  Demands staying;
  for (const Demand* job : jobs) {
    if (!job->can_spill) staying.push_back(job);
    if (job->can_spill) capacity -= job->persistent;
  }
  const auto rest = side_by_side(staying, capacity - room);
  if (!rest) return std::nullopt;
  Limits limits;
  for (std::size_t i = 0, at = 0; i < jobs.size(); ++i) {
    limits.push_back(jobs[i]->can_spill ? quickest_within(*jobs[i], room)->bytes : (*rest)[at++]);
  }
  return limits;
}

std::optional<Limits> in_turns(const Demands& jobs, Bytes capacity) {
  Demands spilling;
  for (const Demand* job : jobs) {
    if (job->can_spill) spilling.push_back(job);
  }
  std::size_t points = 1;
  for (const Demand* job : jobs) points += job->choices.size();
  const std::size_t most = std::clamp(kMostWork / points, kFewestRooms, kMostRooms);
  std::optional<Limits> best;
  for (Bytes room : rooms(spilling, most)) {
    auto limits = with_room(jobs, capacity, room);
    if (!limits) break;  // a larger room leaves the others less
    if (!best || times_of(jobs, *limits) < times_of(jobs, *best)) best = std::move(limits);
  }
  return best;
}

std::optional<Limits> together(const Demands& jobs, Bytes capacity) {
  const auto limits = side_by_side(jobs, capacity);
  return limits ? limits : in_turns(jobs, capacity);
}

// Every job that is not put away.
std::vector<Place> places(const std::vector<Demand>& jobs, const std::vector<bool>& away,
                          const Limits& limits) {
  std::vector<Place> result;
  for (std::size_t i = 0, at = 0; i < jobs.size(); ++i) {
    result.push_back(away[i] ? Place{0, true} : Place{limits[at++], false});
  }
  return result;
}

Demands kept(const std::vector<Demand>& jobs, const std::vector<bool>& away) {
  Demands result;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (!away[i]) result.push_back(&jobs[i]);
  }
  return result;
}

// The first to leave: lowest priority, then the last to come.
std::vector<std::size_t> order_of_leaving(const std::vector<Demand>& jobs) {
  std::vector<std::size_t> order;
  for (std::size_t i = jobs.size(); i-- > 0;) {
    if (jobs[i].may_be_away) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return jobs[a].priority < jobs[b].priority;
  });
  return order;
}

Error no_arrangement(const Demands& jobs, Bytes capacity) {
  Bytes parked = 0, room = 0;
  for (const Demand* job : jobs) {
    const Bytes stays = parked_bytes(*job, least_bytes(*job));
    parked += stays;
    room = std::max(room, least_bytes(*job) - stays);
  }
  const Bytes least = least_sum(jobs);
  return infeasible("the least bytes of " + format_count(jobs.size(), "job") + " sum to " +
                    format_grouped(least) + ", expected at most " + format_grouped(capacity) +
                    (parked + room < least
                         ? ", and in turns they need " + format_grouped(parked + room)
                         : std::string()));
}

}  // namespace

Demand demand_of(const JobSpec& spec) {
  return {.priority = spec.priority,
          .choices = choices(spec),
          .persistent = spec.persistent_bytes,
          .can_spill = spec.deepest >= Depth::kSpill};
}

Bytes least_bytes(const Demand& demand) {
  Bytes least = kMaxBytes;
  for (const MemoryPoint& point : demand.choices) least = std::min(least, point.bytes);
  return least;
}

Bytes parked_bytes(const Demand& demand, Bytes full) {
  return demand.can_spill ? std::min(demand.persistent, full) : full;
}

namespace {

// Without points that take no fewer bytes than a quicker one; of the others `most`, the first and the last among them.
std::vector<MemoryPoint> thinned(std::vector<MemoryPoint> points, std::size_t most) {
  std::sort(points.begin(), points.end(), [](const MemoryPoint& a, const MemoryPoint& b) {
    return std::tie(a.bytes, a.time) < std::tie(b.bytes, b.time);
  });
  std::vector<MemoryPoint> useful;
  for (const MemoryPoint& point : points) {
    if (useful.empty() || point.time < useful.back().time) useful.push_back(point);
  }
  if (useful.size() <= most) return useful;
  std::vector<MemoryPoint> some;
  for (std::size_t i = 0; i < most; ++i) {
    some.push_back(useful[i * (useful.size() - 1) / (most - 1)]);
  }
  return some;
}

std::vector<Demand> coarser(std::vector<Demand> jobs) {
  std::size_t points = 0;
  for (const Demand& job : jobs) points += job.choices.size();
  if (points <= kMostPointsOfAll) return jobs;
  const std::size_t most = std::max(kFewestPoints, kMostPointsOfAll / jobs.size());
  for (Demand& job : jobs) job.choices = thinned(std::move(job.choices), most);
  return jobs;
}

Result<std::vector<Place>> arrange_all(const std::vector<Demand>& jobs, Bytes capacity) {
  std::vector<bool> away(jobs.size(), false);
  auto limits = together(kept(jobs, away), capacity);
  const auto leaving = order_of_leaving(jobs);
  for (auto next = leaving.begin(); !limits && next != leaving.end(); ++next) {
    away[*next] = true;
    limits = together(kept(jobs, away), capacity);
  }
  if (!limits) return no_arrangement(kept(jobs, away), capacity);
  // A small job may have gone before the large one that was in the way.
  for (auto next = leaving.rbegin(); next != leaving.rend(); ++next) {
    if (!away[*next]) continue;
    away[*next] = false;
    if (auto more = together(kept(jobs, away), capacity)) {
      limits = std::move(more);
    } else {
      away[*next] = true;
    }
  }
  return places(jobs, away, *limits);
}

}  // namespace

Result<std::vector<Place>> arrange(const std::vector<Demand>& jobs, Bytes capacity) {
  return arrange_all(coarser(jobs), capacity);
}

}  // namespace regen::share
