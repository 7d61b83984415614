// What a search finds, as progress.
#pragma once

#include "regen/base/progress/progress.h"
#include "regen/search/judge.h"

namespace regen::search {

// Empty without a watcher, so that planners need not call it. `progress` must outlive it.
inline SearchObserver observer_of(Progress& progress) {
  if (!progress.watched()) return {};
  return [&progress](double, std::optional<double> incumbent, double bound) {
    progress.improve(incumbent, bound);
  };
}

// What the judge says of the outcome, in place of what the planners said meanwhile.
inline void settle(Progress& progress, const Result<Outcome>& outcome) {
  if (!outcome.ok()) return;
  const bool found = outcome->plan && (outcome->status == PlanStatus::kOptimal ||
                                       outcome->status == PlanStatus::kFeasible);
  progress.settle(found ? std::optional(outcome->simulation.cost) : std::nullopt,
                  outcome->lower_bound);
}

}  // namespace regen::search
