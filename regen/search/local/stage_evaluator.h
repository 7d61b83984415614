// The cost of a keep matrix: the fewest re-runs that realise it, and the memory of each step.
// Fast enough for search: no allocation after the first evaluations, a few nanoseconds for a step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "regen/search/local/keep_matrix.h"

namespace regen::search {

// How far a schedule is from a budget.
struct Score {
  double cost = 0;
  Bytes peak = 0;      // without the fixed bytes
  Bytes overflow = 0;  // sum over the stages of what their peaks have above the budget

  bool fits() const { return overflow == 0; }
};

class StageEvaluator {
 public:
  explicit StageEvaluator(const StageProblem& stages);

  // Nothing if a value must be recomputed that cannot be. The results below are valid until the
  // next call.
  std::optional<Score> evaluate(const KeepMatrix& keep, Bytes budget);

  // Of the last evaluation.
  const std::vector<OpId>& sequence() const { return sequence_; }
  std::size_t stage_of(std::size_t step) const { return stage_of_[step]; }
  Bytes memory(std::size_t step) const { return memory_[step]; }
  std::size_t peak_step() const { return peak_step_; }

 private:
  bool add_stage(const KeepMatrix& keep, std::size_t stage);
  bool demand(OpId op, std::size_t stage);
  void measure(Bytes budget, Score& score);

  const StageProblem& stages_;
  std::vector<OpId> sequence_;
  std::vector<std::uint32_t> stage_of_;
  std::vector<Bytes> memory_;
  std::size_t peak_step_ = 0;
  std::vector<std::uint64_t> wanted_;  // ops of the stage being built, one bit each
  std::size_t lowest_word_ = 0;
  IdVector<ValueId, char> needed_;
};

}  // namespace regen::search
