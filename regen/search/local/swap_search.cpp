#include "regen/search/local/swap_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace regen {
namespace {

// Of the gaps over a peak the largest are tried; one that frees little does not help there.
constexpr std::size_t kGapsTried = 24;

}  // namespace

HybridSearch::HybridSearch(const Problem& problem, const Frontier& frontier, Effort& effort)
    : problem_(problem),
      frontier_(frontier),
      effort_(effort),
      random_(problem.options.seed),
      evaluator_(problem, frontier),
      gaps_(find_stage_gaps(frontier)) {
  std::erase_if(gaps_, [&](const StageGap& gap) { return frontier.bytes[gap.value] == 0; });
}

std::optional<HybridSearch::Judged> HybridSearch::judge(HybridSchedule schedule) {
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

bool HybridSearch::better(const Judged& a, const Judged& b) {
  if (a.over != b.over) return a.over < b.over;
  return a.candidate.simulation.cost < b.candidate.simulation.cost;
}

void HybridSearch::offer(const Judged& judged) {
  if (!best_ || better(judged, *best_)) best_ = judged;
}

void HybridSearch::add_start(HybridSchedule start) {
  auto judged = judge(std::move(start));
  if (!judged) return;
  offer(*judged);
  repair(*judged);
  offer(*judged);
  improve(*judged, frontier_.base_cost);
  offer(*judged);
}

// Changes, one by one, the gap over the peak that brings the schedule nearer to the budget at the
// least cost for each byte.
void HybridSearch::repair(Judged& judged) {
  while (!fits(judged) && !effort_.exhausted()) {
    std::optional<Judged> next;
    double least = std::numeric_limits<double>::infinity();
    for (const StageGap& gap : gaps_over_peak(judged)) {
      for (const GapWay way : {GapWay::kMove, GapWay::kDrop}) {
        if (way <= way_of(judged.schedule, gap) || !possible(way)) continue;
        HybridSchedule changed = judged.schedule;
        set_way(changed, gap, way);
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
std::vector<StageGap> HybridSearch::gaps_over_peak(const Judged& judged) const {
  std::vector<StageGap> result;
  for (const StageGap& gap : gaps_) {
    const bool covers = gap.first <= judged.peak_stage && judged.peak_stage <= gap.last;
    if (covers && way_of(judged.schedule, gap) != GapWay::kDrop) result.push_back(gap);
  }
  std::ranges::stable_sort(result, std::ranges::greater{},
                           [&](const StageGap& gap) { return frontier_.bytes[gap.value]; });
  if (result.size() > kGapsTried) result.resize(kGapsTried);
  return result;
}

// Every gap in a random order, each in its best way as things stand, until none changes.
void HybridSearch::improve(Judged& judged, double goal) {
  std::vector<std::size_t> order(gaps_.size());
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
      changed |= try_other_ways(judged, gaps_[i]);
    }
  }
}

bool HybridSearch::try_other_ways(Judged& judged, const StageGap& gap) {
  bool changed = false;
  const GapWay present = way_of(judged.schedule, gap);
  // To give a value up when nothing waits and all fits can only cost.
  if (present == GapWay::kKeep && fits(judged) && judged.candidate.simulation.stall == 0) {
    return false;
  }
  for (const GapWay way : {GapWay::kKeep, GapWay::kMove, GapWay::kDrop}) {
    if (way == present || !possible(way)) continue;
    HybridSchedule other = judged.schedule;
    set_way(other, gap, way);
    auto tried = judge(std::move(other));
    if (!tried || !better(*tried, judged)) continue;
    judged = *std::move(tried);
    changed = true;
  }
  return changed;
}

HybridSchedule HybridSearch::disturbed(const Judged& judged) {
  HybridSchedule schedule = judged.schedule;
  const auto changes = random_.between(1, 1 + static_cast<std::int64_t>(gaps_.size()) / 8);
  const std::array ways{GapWay::kKeep, GapWay::kMove, GapWay::kDrop};
  for (std::int64_t i = 0; i < changes; ++i) {
    const StageGap& gap = gaps_[static_cast<std::size_t>(
        random_.between(0, static_cast<std::int64_t>(gaps_.size()) - 1))];
    set_way(schedule, gap, ways[static_cast<std::size_t>(random_.between(0, 2))]);
  }
  return schedule;
}

void HybridSearch::run(int rounds, double goal) {
  int idle = 0;
  while (found() && !gaps_.empty() && idle < rounds && best().simulation.cost > goal &&
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

}  // namespace regen
