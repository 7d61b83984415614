#include "regen/planners/hybrid_search.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace regen {
namespace {

// Of the gaps over a peak the largest are tried; a drop that frees little does not help there.
constexpr std::size_t kDropsTried = 24;

}  // namespace

HybridSearch::HybridSearch(const Problem& problem, const Frontier& frontier, Effort& effort)
    : problem_(problem),
      frontier_(frontier),
      effort_(effort),
      random_(problem.options.seed),
      evaluator_(problem, frontier),
      gaps_(find_gaps(frontier)) {
  std::erase_if(gaps_, [&](const Gap& gap) { return frontier.bytes[gap.value] == 0; });
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

// Drops, one by one, the gap over the peak that brings the schedule nearest to the budget.
void HybridSearch::repair(Judged& judged) {
  while (!fits(judged) && !effort_.exhausted()) {
    std::vector<Gap> over_peak;
    for (const Gap& gap : gaps_) {
      const bool covers = gap.first <= judged.peak_stage && judged.peak_stage <= gap.last;
      if (covers && way_of(judged.schedule, gap) != GapWay::kDrop) over_peak.push_back(gap);
    }
    std::ranges::stable_sort(over_peak, std::ranges::greater{},
                             [&](const Gap& gap) { return frontier_.bytes[gap.value]; });
    if (over_peak.size() > kDropsTried) over_peak.resize(kDropsTried);
    std::optional<Judged> next;
    for (const Gap& gap : over_peak) {
      HybridSchedule changed = judged.schedule;
      set_way(changed, gap, GapWay::kDrop);
      auto tried = judge(std::move(changed));
      if (tried && (!next || better(*tried, *next))) next = std::move(tried);
    }
    if (!next || next->over >= judged.over) return;
    judged = *std::move(next);
  }
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

bool HybridSearch::try_other_ways(Judged& judged, const Gap& gap) {
  bool changed = false;
  const GapWay present = way_of(judged.schedule, gap);
  for (const GapWay way : {GapWay::kKeep, GapWay::kMove, GapWay::kDrop}) {
    if (way == present || (way == GapWay::kMove && !problem_.link.can_move())) continue;
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
    const Gap& gap = gaps_[static_cast<std::size_t>(
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
