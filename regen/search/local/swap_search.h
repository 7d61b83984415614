// Good hybrid schedules by iterated local search over the gaps between uses: each is kept, moved or
// dropped, and the simulator says what that costs, stalls included. At any size, at any moment.
#pragma once

#include <optional>
#include <vector>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/search/local/swap_schedule.h"

namespace regen {

class HybridSearch {
 public:
  // One unit of work is one step of one evaluated schedule.
  HybridSearch(const Problem& problem, const Frontier& frontier, Effort& effort);

  // Brings a start within the limits if moving and dropping values can, and improves it one gap at
  // a time.
  void add_start(HybridSchedule start);

  // Changes some gaps of the best schedule at random, repairs and improves, keeping what is
  // cheaper, until `rounds` in a row bring nothing, the cost has reached `goal`, or the effort is
  // spent. Does nothing without a start that fits.
  void run(int rounds, double goal);

  const std::vector<StageGap>& gaps() const { return gaps_; }
  bool found() const { return best_ && fits(*best_); }
  // Within the limits if found(), else the nearest to them; needs a start.
  const Candidate& best() const { return best_->candidate; }
  bool started() const { return best_.has_value(); }

 private:
  struct Judged {
    HybridSchedule schedule;
    Candidate candidate;
    Bytes over = 0;  // above the budgets
    std::size_t peak_stage = 0;
  };

  std::optional<Judged> judge(HybridSchedule schedule);
  static bool fits(const Judged& judged) { return judged.over == 0; }
  static bool better(const Judged& a, const Judged& b);
  bool possible(GapWay way) const { return way != GapWay::kMove || problem_.link.can_move(); }
  void repair(Judged& judged);
  std::vector<StageGap> gaps_over_peak(const Judged& judged) const;
  void improve(Judged& judged, double goal);
  bool try_other_ways(Judged& judged, const StageGap& gap);
  HybridSchedule disturbed(const Judged& judged);
  void offer(const Judged& judged);

  const Problem& problem_;
  const Frontier& frontier_;
  Effort& effort_;
  Random random_;
  HybridEvaluator evaluator_;
  std::vector<StageGap> gaps_;  // of values that take bytes
  std::optional<Judged> best_;
};

}  // namespace regen
