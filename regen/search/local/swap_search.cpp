#include "regen/search/local/swap_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace regen::search {
namespace {

// Of the intervals over a peak the largest are tried; one that frees little does not help there.
constexpr std::size_t kIntervalsTried = 24;

}  // namespace

SwapSearch::SwapSearch(const Problem& problem, const StageProblem& stages, Effort& effort)
    : problem_(problem),
      stages_(stages),
      effort_(effort),
      random_(problem.options.seed),
      evaluator_(problem, stages),
      intervals_(find_stage_reuses(stages)) {
  std::erase_if(intervals_,
                [&](const StageReuse& interval) { return stages.bytes[interval.value] == 0; });
}

std::optional<SwapSearch::Judged> SwapSearch::judge(SwapSchedule schedule) {
  auto candidate = evaluator_.evaluate(schedule);
  effort_.add(static_cast<std::int64_t>(evaluator_.num_steps()) + 1);
  if (!candidate) return std::nullopt;
  Judged judged{.schedule = std::move(schedule),
                .candidate = *std::move(candidate),
                .peak_stage = evaluator_.peak_stage()};
  const Simulation& simulation = judged.candidate.simulation;
  if (problem_.budget) judged.over += std::max<Bytes>(0, simulation.peak_bytes - *problem_.budget);
  if (problem_.host_budget) {
    judged.over += std::max<Bytes>(0, simulation.host_peak_bytes - *problem_.host_budget);
  }
  return judged;
}

bool SwapSearch::better(const Judged& a, const Judged& b) {
  if (a.over != b.over) return a.over < b.over;
  return a.candidate.simulation.cost < b.candidate.simulation.cost;
}

void SwapSearch::offer(const Judged& judged) {
  if (!best_ || better(judged, *best_)) best_ = judged;
}

void SwapSearch::add_start(SwapSchedule start) {
  auto judged = judge(std::move(start));
  if (!judged) return;
  offer(*judged);
  repair(*judged);
  offer(*judged);
  improve(*judged, stages_.base_cost);
  offer(*judged);
}

// Changes, one by one, the interval over the peak that brings the schedule nearer to the budget at
// the least cost for each byte.
void SwapSearch::repair(Judged& judged) {
  while (!fits(judged) && !effort_.exhausted()) {
    std::optional<Judged> next;
    double least = std::numeric_limits<double>::infinity();
    for (const StageReuse& interval : intervals_over_peak(judged)) {
      for (const IntervalDecision way : {IntervalDecision::kMove, IntervalDecision::kDrop}) {
        if (way <= way_of(judged.schedule, interval) || !possible(way)) continue;
        SwapSchedule changed = judged.schedule;
        set_way(changed, interval, way);
        auto tried = judge(std::move(changed));
        if (!tried || tried->over >= judged.over) continue;
        const double price = (tried->candidate.simulation.cost - judged.candidate.simulation.cost) /
                             static_cast<double>(judged.over - tried->over);
        if (price >= least) continue;
        least = price;
        next = std::move(tried);
      }
    }
    if (!next) return;
    judged = *std::move(next);
  }
}

// The largest that are not dropped yet.
std::vector<StageReuse> SwapSearch::intervals_over_peak(const Judged& judged) const {
  std::vector<StageReuse> result;
  for (const StageReuse& interval : intervals_) {
    const bool covers = interval.first <= judged.peak_stage && judged.peak_stage <= interval.last;
    if (covers && way_of(judged.schedule, interval) != IntervalDecision::kDrop)
      result.push_back(interval);
  }
  std::ranges::stable_sort(result, std::ranges::greater{}, [&](const StageReuse& interval) {
    return stages_.bytes[interval.value];
  });
  if (result.size() > kIntervalsTried) result.resize(kIntervalsTried);
  return result;
}

// Every interval in a random order, each in its best way as things stand, until none changes.
void SwapSearch::improve(Judged& judged, double goal) {
  std::vector<std::size_t> order(intervals_.size());
  std::iota(order.begin(), order.end(), 0);
  bool changed = true;
  while (changed) {
    changed = false;
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(
          order[i - 1],
          order[static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(i) - 1))]);
    }
    for (const std::size_t i : order) {
      const bool perfect = fits(judged) && judged.candidate.simulation.cost <= goal;
      if (perfect || effort_.exhausted()) return;
      changed |= try_other_ways(judged, intervals_[i]);
    }
  }
}

bool SwapSearch::try_other_ways(Judged& judged, const StageReuse& interval) {
  bool changed = false;
  const IntervalDecision present = way_of(judged.schedule, interval);
  // Without stalls and within the budget, dropping or moving a value can only add cost.
  if (present == IntervalDecision::kKeep && fits(judged) &&
      judged.candidate.simulation.stall == 0) {
    return false;
  }
  for (const IntervalDecision way :
       {IntervalDecision::kKeep, IntervalDecision::kMove, IntervalDecision::kDrop}) {
    if (way == present || !possible(way)) continue;
    SwapSchedule other = judged.schedule;
    set_way(other, interval, way);
    auto tried = judge(std::move(other));
    if (!tried || !better(*tried, judged)) continue;
    judged = *std::move(tried);
    changed = true;
  }
  return changed;
}

SwapSchedule SwapSearch::disturbed(const Judged& judged) {
  SwapSchedule schedule = judged.schedule;
  const auto changes = random_.between(1, 1 + static_cast<std::int64_t>(intervals_.size()) / 8);
  const std::array ways{IntervalDecision::kKeep, IntervalDecision::kMove, IntervalDecision::kDrop};
  for (std::int64_t i = 0; i < changes; ++i) {
    const StageReuse& interval = intervals_[static_cast<std::size_t>(
        random_.between(0, static_cast<std::int64_t>(intervals_.size()) - 1))];
    set_way(schedule, interval, ways[static_cast<std::size_t>(random_.between(0, 2))]);
  }
  return schedule;
}

void SwapSearch::run(int rounds, double goal) {
  int idle = 0;
  while (found() && !intervals_.empty() && idle < rounds && best().simulation.cost > goal &&
         !effort_.exhausted()) {
    ++idle;
    auto judged = judge(disturbed(*best_));
    if (!judged) continue;
    repair(*judged);
    improve(*judged, goal);
    if (!better(*judged, *best_)) continue;
    best_ = *std::move(judged);
    idle = 0;
  }
}

}  // namespace regen::search
