// Good stage schedules by iterated local search. From any start, values are dropped where memory
// exceeds the budget until the schedule fits. Re-runs are removed while it still fits. Then parts
// of it are undone and repaired again; the cheaper schedule is kept.
#pragma once

#include <functional>
#include <optional>

#include "regen/base/limit.h"
#include "regen/base/random.h"
#include "regen/search/local/stage_evaluator.h"

namespace regen::search {

class StageSearch {
 public:
  // `budget` without the fixed bytes. One unit of work is one step of one evaluated schedule.
  StageSearch(const StageProblem& stages, Bytes budget, std::uint64_t seed, Effort& effort);

  // Repairs and improves a start; true if it fits in the end.
  bool add_start(KeepMatrix start);

  // For budgets at which a start cannot be repaired in one go: lowers the budget in small steps,
  // each from the schedule that fitted the step before. True if the budget is reached.
  bool descend(KeepMatrix start);

  // Undo, repair, improve, until `rounds` in a row bring nothing, `work` is done, the cost has
  // reached `goal`, or the effort is spent. Needs a start that fits.
  void run(int rounds, std::int64_t work, double goal,
           const std::function<void(double cost)>& on_better = {});

  bool found() const { return best_.has_value(); }
  const KeepMatrix& best() const { return best_->keep; }
  const Score& best_score() const { return best_->score; }
  std::vector<OpId> best_sequence();

 private:
  struct Schedule {
    KeepMatrix keep;
    Score score;
  };
  struct Move {
    ValueId value;
    std::size_t first = 0;  // rows of S
    std::size_t last = 0;
  };

  std::optional<Score> evaluate(const KeepMatrix& keep);
  bool repair(Schedule& schedule);
  void improve(Schedule& schedule);
  void perturb(Schedule& schedule);
  void offer(const Schedule& schedule);
  std::vector<Move> drops_at(std::size_t step);
  std::optional<Move> best_drop(const Schedule& schedule, const std::vector<Move>& moves);
  std::vector<Move> keeps();
  std::vector<Bytes> stage_peaks() const;
  std::optional<std::size_t> overflowing_step();

  const StageProblem& stages_;
  Bytes budget_;
  Random random_;
  Effort& effort_;
  StageEvaluator evaluator_;
  std::optional<Schedule> best_;
};

}  // namespace regen::search
