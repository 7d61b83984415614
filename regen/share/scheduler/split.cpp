#include "regen/share/scheduler/split.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

namespace regen::share {
namespace {

// Where a partial choice came from, so that the whole choice can be read back at the end.
struct Step {
  std::size_t previous = 0;
  std::size_t point = 0;
};

// A partial choice: no other one for the same jobs takes at most its bytes and less time.
struct State {
  Bytes granules = 0;
  std::vector<Nanoseconds> level_times;  // highest priority first
  Step step = {};
};

// Highest first; times are compared in this order.
std::map<std::int64_t, std::size_t, std::greater<>> number_levels(
    const std::vector<SplitJob>& jobs) {
  std::map<std::int64_t, std::size_t, std::greater<>> levels;
  for (const SplitJob& job : jobs) levels[job.priority] = 0;
  std::size_t next = 0;
  for (auto& [priority, level] : levels) level = next++;
  return levels;
}

// Ten jobs of thirty years each have more nanoseconds than fit: such sums count as equal.
Nanoseconds sum_of(Nanoseconds a, Nanoseconds b) {
  return a > kNever - b ? kNever : a + b;
}

Bytes in_granules(Bytes bytes, Bytes granule) {
  return bytes / granule + (bytes % granule != 0 ? 1 : 0);
}

// Of states sorted by bytes, only those that are quicker than all before. Comparing level by level
// is a total order that adding the same times to both sides keeps, which makes the cut exact.
std::vector<State> undominated(std::vector<State> states) {
  std::sort(states.begin(), states.end(), [](const State& a, const State& b) {
    return std::tie(a.granules, a.level_times) < std::tie(b.granules, b.level_times);
  });
  std::vector<State> kept;
  for (State& state : states) {
    if (kept.empty() || state.level_times < kept.back().level_times) {
      kept.push_back(std::move(state));
    }
  }
  return kept;
}

// Every state with every point of one more job, as far as it fits.
std::vector<State> extended(const std::vector<State>& states, const SplitJob& job,
                            std::size_t level, Bytes capacity, Bytes granule) {
  std::vector<State> result;
  for (std::size_t from = 0; from < states.size(); ++from) {
    for (std::size_t point = 0; point < job.points.size(); ++point) {
      const Bytes added = in_granules(job.points[point].bytes, granule);
      if (added > capacity - states[from].granules) continue;
      State next{states[from].granules + added, states[from].level_times, {from, point}};
      next.level_times[level] = sum_of(next.level_times[level], job.points[point].time);
      result.push_back(std::move(next));
    }
  }
  return undominated(std::move(result));
}

Bytes least_sum(const std::vector<SplitJob>& jobs) {
  Bytes sum = 0;
  for (const SplitJob& job : jobs) {
    Bytes least = kMaxBytes;
    for (const MemoryPoint& point : job.points) least = std::min(least, point.bytes);
    sum += least;
  }
  return sum;
}

}  // namespace

Result<Split> split(const std::vector<SplitJob>& jobs, Bytes capacity, Bytes granule) {
  const auto levels = number_levels(jobs);
  const Bytes granules = capacity / granule;
  std::vector<State> states{{0, std::vector<Nanoseconds>(levels.size()), {}}};
  std::vector<std::vector<Step>> history;
  for (const SplitJob& job : jobs) {
    states = extended(states, job, levels.at(job.priority), granules, granule);
    if (states.empty()) {
      return infeasible("the least bytes of " + format_count(jobs.size(), "job") + " sum to " +
                        format_grouped(least_sum(jobs)) + ", expected at most " +
                        format_grouped(capacity));
    }
    history.emplace_back();
    for (const State& state : states) history.back().push_back(state.step);
  }
  Split best{.chosen = std::vector<std::size_t>(jobs.size())};
  std::size_t at = states.size() - 1;  // the most bytes, so the least time
  for (std::size_t job = jobs.size(); job-- > 0;) {
    const Step& step = history[job][at];
    best.chosen[job] = step.point;
    best.bytes += jobs[job].points[step.point].bytes;
    best.time = sum_of(best.time, jobs[job].points[step.point].time);
    at = step.previous;
  }
  return best;
}

}  // namespace regen::share
