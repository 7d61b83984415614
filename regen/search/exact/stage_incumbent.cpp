#include "regen/search/exact/stage_incumbent.h"

#include <utility>

#include "regen/base/tolerance.h"
#include "regen/search/build/sequence.h"
#include "regen/simulate/simulate.h"

namespace regen::search {
namespace {

Problem without_movement(const Problem& problem) {
  Problem alone = problem;
  alone.link = {};
  alone.cost_cap.reset();
  alone.observer = nullptr;
  return alone;
}

}  // namespace

StageIncumbent::StageIncumbent(const Problem& problem, Effort& effort)
    : alone_(without_movement(problem)), search_(alone_, effort), seed_(problem.options.seed) {}

void StageIncumbent::start() {
  search_.start_in_blocks();
  search_.start(/*give_up=*/true);
  search_.start_exactly(seed_);
  take_from_search();
}

// Local search cannot express every stage schedule: one that fits counts as it is.
void StageIncumbent::offer(const std::vector<OpId>& sequence) {
  const Plan plan = plan_from_sequence(*alone_.graph, sequence);
  const auto simulation = simulate(*alone_.graph, plan);
  if (!simulation.ok()) return;
  const bool fits = simulation->peak_bytes <= *alone_.budget;
  if (fits && (!best_ || clearly_below(simulation->cost, best_->cost))) {
    best_ = Schedule{sequence, simulation->cost};
  }
  search_.start_from(plan);
  take_from_search();
}

void StageIncumbent::start_by_lowering(std::uint64_t seed) {
  search_.start_by_lowering(seed);
  take_from_search();
}

void StageIncumbent::improve(double goal, std::int64_t work) {
  search_.improve(seed_++, goal, {.most = {.work = work}});
  take_from_search();
}

void StageIncumbent::take_from_search() {
  const std::optional<IntervalPlan>& plan = search_.best();
  if (!plan || (best_ && !clearly_below(plan->cost, best_->cost))) return;
  best_ = Schedule{plan->ops, plan->cost};
}

}  // namespace regen::search
