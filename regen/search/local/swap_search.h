// Good recompute+swap schedules by iterated local search over reuse intervals. Each interval is
// kept, moved or dropped; the simulator prices the result, stalls included. Works at any size, and
// can be stopped at any moment.
#pragma once

#include <optional>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/search/local/swap_schedule.h"

namespace regen::search {

class SwapSearch {
 public:
  // One unit of work is one step of one evaluated schedule.
  SwapSearch(const Problem& problem, const StageProblem& stages, Effort& effort);

  // Moves and drops values until a start is within the limits, if that is possible, and improves it
  // one interval at a time.
  void add_start(SwapSchedule start);

  // Changes some intervals of the best schedule at random, repairs and improves it, and keeps the
  // cheaper one. Stops when `rounds` in a row bring nothing, the cost has reached `goal`, or the
  // effort is spent. Does nothing without a start that fits.
  void run(int rounds, double goal);

  const std::vector<StageReuse>& intervals() const { return intervals_; }
  bool found() const { return best_ && fits(*best_); }
  // Within the limits if found(), else the nearest to them; needs a start.
  const Candidate& best() const { return best_->candidate; }
  bool started() const { return best_.has_value(); }

 private:
  struct Judged {
    SwapSchedule schedule;
    Candidate candidate;
    Bytes over = 0;  // above the budgets
    std::size_t peak_stage = 0;
  };

  std::optional<Judged> judge(SwapSchedule schedule);
  static bool fits(const Judged& judged) { return judged.over == 0; }
  static bool better(const Judged& a, const Judged& b);
  bool possible(IntervalDecision way) const {
    return way != IntervalDecision::kMove || problem_.link.can_move();
  }
  void repair(Judged& judged);
  std::vector<StageReuse> intervals_over_peak(const Judged& judged) const;
  void improve(Judged& judged, double goal);
  bool try_other_ways(Judged& judged, const StageReuse& interval);
  SwapSchedule disturbed(const Judged& judged);
  void offer(const Judged& judged);

  const Problem& problem_;
  const StageProblem& stages_;
  Effort& effort_;
  Random random_;
  SwapEvaluator evaluator_;
  std::vector<StageReuse> intervals_;  // of values that take bytes
  std::optional<Judged> best_;
};

}  // namespace regen::search
