// Recompute+swap schedules: the values that each stage passes to the next, and which of them may be
// on the host meanwhile. The stages are those of exact/stage_problem.h.
//
//   stage          1  2  3  4  5  6
//   a's value      made  ........ read     four ways over the interval between its uses:
//     keep         #  #  #  #  #  #          on the device
//     move         #  ~  ~  ~  ~  #          may be on the host when its bytes are needed
//     drop         #              #          recomputed for stage 6
#pragma once

#include <optional>
#include <vector>

#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/movement.h"
#include "regen/search/local/keep_matrix.h"
#include "regen/search/local/stage_evaluator.h"

namespace regen::search {

struct SwapSchedule {
  KeepMatrix keep;  // the values a stage begins with, on the device or on the host
  KeepMatrix away;  // those of them that may be on the host

  bool operator==(const SwapSchedule&) const = default;
};

// The rows first..last of S between two uses of a value by first runs, with others in between.
struct StageReuse {
  ValueId value;
  std::size_t first = 0;
  std::size_t last = 0;
};

enum class IntervalDecision : std::uint8_t { kKeep, kMove, kDrop };

std::vector<StageReuse> find_stage_reuses(const StageProblem& stages);
IntervalDecision way_of(const SwapSchedule& schedule, const StageReuse& interval);
void set_way(SwapSchedule& schedule, const StageReuse& interval, IntervalDecision way);

// Everything kept, and every interval of bytes in the given way.
SwapSchedule uniform_schedule(const StageProblem& stages, const std::vector<StageReuse>& intervals,
                              IntervalDecision way);

// The values that a plan passes from stage to stage, and the intervals they spend on the host.
SwapSchedule schedule_of(const StageProblem& stages, const std::vector<StageReuse>& intervals,
                         const Plan& plan);

// Judges recompute+swap schedules. `problem` and `stages` must outlive it.
class SwapEvaluator {
 public:
  SwapEvaluator(const Problem& problem, const StageProblem& stages);

  // The judged plan, within the budget where movement can achieve that; nothing if a value must be
  // recomputed that cannot be.
  std::optional<Candidate> evaluate(const SwapSchedule& schedule);

  // From now on fetches of the tensor are issued this many copy durations ahead of their use.
  void set_lead(TensorId tensor, double lead) { lead_[tensor] = lead; }
  double lead(TensorId tensor) const { return lead_[tensor]; }

  // Of the last evaluation: the stage of the op that runs at the highest memory.
  std::size_t peak_stage() const { return peak_stage_; }
  std::size_t num_steps() const { return stage_evaluator_.sequence().size(); }

 private:
  std::vector<Absence> absences(const KeepMatrix& away) const;
  std::vector<Absence> within_host_budget(std::vector<Absence> absences) const;
  void find_peak(const Plan& plan, const Simulation& simulation);

  const Problem& problem_;
  const StageProblem& stages_;
  StageEvaluator stage_evaluator_;
  IdVector<TensorId, double> lead_;
  std::size_t peak_stage_ = 0;
};

}  // namespace regen::search
