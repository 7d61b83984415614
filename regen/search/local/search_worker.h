// One of several local searches that run side by side from different plans. A try holds some
// dropped values or moves other values, repairs the plan, and accepts it if it is cheaper, or for a
// while if it is a little more expensive. On small graphs each cycle of tries ends with a descent:
// every other decision for every single interval, evaluated exactly.
#pragma once

#include <cstdint>
#include <limits>

#include "regen/search/local/interval_repair.h"

namespace regen::search {

class SearchWorker {
 public:
  // The space must outlive it.
  SearchWorker(const IntervalSpace& space, IntervalState start, std::uint64_t seed)
      : space_(&space), random_(seed), current_(start), best_(std::move(start)) {}

  // At most `tries` tries within the limits; stops at a plan that costs at most `good_enough`.
  void explore(int tries, double good_enough, const Limits& limits);
  // Continues from the plan of another worker, with its own random numbers.
  void settle(const IntervalState& state) { best_ = state; }

  const IntervalState& best() const { return best_; }
  double cost() const { return best_.plan.cost; }
  std::int64_t work() const { return work_; }  // of the last exploration
  int since_better() const { return since_better_; }

 private:
  double exact_probability(const IntervalState& state) const;
  bool has_work_for_exact() const;
  void descend(IntervalRepair& repair);
  bool try_next(IntervalRepair& repair, IntervalState& next);
  bool try_exactly(IntervalRepair& repair, IntervalState& next);
  bool try_by_estimates(IntervalRepair& repair, IntervalState& next);

  const IntervalSpace* space_;
  Random random_;
  IntervalState current_;
  IntervalState best_;
  std::int64_t work_ = 0;
  int since_better_ = 0;            // tries
  bool estimate_failed_ = false;    // the last try
  double failures_ = 0;             // of tries by estimates: the running mean
  std::int64_t estimate_work_ = 0;  // of tries by estimates
  std::int64_t exact_work_ = 0;     // of exact repairs and descents
  // The cost after the last descent: at this cost another one finds nothing.
  double descended_to_ = std::numeric_limits<double>::infinity();
};

}  // namespace regen::search
