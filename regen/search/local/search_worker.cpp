#include "regen/search/local/search_worker.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "regen/base/tolerance.h"
#include "regen/search/local/exact_repair.h"
#include "regen/search/local/perturbation.h"

namespace regen::search {
namespace {

constexpr double kAcceptedLossFraction =
    0.06;  // of the overhead: the loss that is accepted at first

// On so few ops exact repairs of plans that move are tried often (experiments/before_after.py over a
// link: chains of 30 to 60 ops).
constexpr std::size_t kFewOps = 100;
constexpr double kExactProbabilityOfFew = 0.3;
// The work of exact repairs and descents in that of tries by estimates, at most.
constexpr double kExactPerEstimateWork = 0.5;
constexpr double kWorkPerOp = 0.25;       // of an evaluation (interval_repair.cpp)
constexpr double kFailureWeight = 0.125;  // of the last try in the running mean of failures

}  // namespace

// Where values move, each evaluation is a simulation: exact repairs take as long as hundreds of tries,
// but on few ops less than a millisecond.
double SearchWorker::exact_probability(const IntervalState& state) const {
  if (!state.plan.steps.empty()) {
    if (space_->graph.num_ops() <= kFewOps) return kExactProbabilityOfFew;
    return estimate_failed_ ? 0.02 : 0.001;
  }
  if (estimate_failed_) return 1;
  return state.decisions.early_drops().empty() ? 0.05 : 0.5;
}

// Repairs by estimates are quick. Where they fail, or where the plan has early drops, which they do
// not find, each change is evaluated.
bool SearchWorker::try_next(IntervalRepair& repair, IntervalState& next) {
  const bool exactly = random_.chance(exact_probability(next)) && has_work_for_exact();
  const std::int64_t before = repair.effort().work();
  const bool fits = exactly ? try_exactly(repair, next) : try_by_estimates(repair, next);
  estimate_failed_ = !exactly && !fits;
  if (!exactly) failures_ += kFailureWeight * ((fits ? 0.0 : 1.0) - failures_);
  (exactly ? exact_work_ : estimate_work_) += repair.effort().work() - before;
  return fits;
}

// On graphs with many ops one exact repair takes as long as hundreds of tries by estimates. These
// keep most of the effort, unless most of them fail.
bool SearchWorker::has_work_for_exact() const {
  if (space_->many()) return false;
  const auto evaluations = static_cast<double>(space_->model.size());
  const double one = evaluations * static_cast<double>(space_->graph.num_ops()) * kWorkPerOp;
  return (static_cast<double>(exact_work_) + one) * (1 - failures_) <=
         kExactPerEstimateWork * static_cast<double>(estimate_work_);
}

void SearchWorker::descend(IntervalRepair& repair) {
  const std::int64_t before = repair.effort().work();
  ExactRepair(repair).descend(best_, random_);
  descended_to_ = cost();
  exact_work_ += repair.effort().work() - before;
}

bool SearchWorker::try_exactly(IntervalRepair& repair, IntervalState& next) {
  perturb_few(*space_, next.decisions, random_);
  ExactRepair exact(repair);
  if (!exact.relieve(next, random_)) return false;
  exact.descend(next, random_);
  return true;
}

bool SearchWorker::try_by_estimates(IntervalRepair& repair, IntervalState& next) {
  perturb(*space_, next.decisions, random_);
  if (!repair.relieve(next, random_, true)) return false;
  repair.refill(next, random_);
  return true;
}

void SearchWorker::explore(int tries, double good_enough, const Limits& limits) {
  constexpr std::array<double, 4> kBlurs{0.3, 1, 2, 4};
  Effort effort(limits);
  IntervalRepair repair(*space_, effort);
  current_ = best_;
  for (int i = 0; i < tries && !effort.exhausted() && cost() > good_enough; ++i) {
    IntervalState next = current_;
    repair.set_blur(kBlurs[static_cast<std::size_t>(random_.between(0, 3))]);
    ++since_better_;
    if (!try_next(repair, next)) continue;
    if (next.plan.cost < cost() * (1 - kSummationError)) {
      since_better_ = 0;
      best_ = next;
    }
    // The accepted loss shrinks.
    const double overhead = cost() / space_->graph.base_cost() - 1;
    const double heat = kAcceptedLossFraction * (1.0 - static_cast<double>(i) / tries);
    const double tolerance = heat * random_.real() * overhead;
    if (next.plan.cost <= current_.plan.cost * (1 + tolerance)) current_ = std::move(next);
  }
  if (cost() < descended_to_ && has_work_for_exact()) descend(repair);
  work_ = effort.work();
}

}  // namespace regen::search
