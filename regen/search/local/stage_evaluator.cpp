#include "regen/search/local/stage_evaluator.h"

#include <algorithm>
#include <bit>

namespace regen::search {

StageEvaluator::StageEvaluator(const StageProblem& stages)
    : stages_(stages), wanted_(stages.num_ops / 64 + 1, 0), needed_(stages.num_values, 0) {}

bool StageEvaluator::demand(OpId op, std::size_t stage) {
  if (op.index() != stage && !stages_.may_run_again(op, stage)) return false;
  wanted_[op.index() / 64] |= std::uint64_t{1} << (op.index() % 64);
  lowest_word_ = std::min(lowest_word_, op.index() / 64);
  return true;
}

bool StageEvaluator::add_stage(const KeepMatrix& keep, std::size_t stage) {
  const std::size_t top_word = stage / 64;
  lowest_word_ = top_word;
  if (!demand(OpId(stage), stage)) return false;
  // Whatever the next stage begins with and this one does not must be made here.
  const auto now = keep.row(stage);
  const auto next = keep.row(stage + 1);
  for (std::size_t w = 0; w < now.size(); ++w) {
    for (std::uint64_t bits = next[w] & ~now[w]; bits != 0; bits &= bits - 1) {
      const ValueId v(w * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
      if (!demand(OpId(stages_.producer[v]), stage)) return false;
    }
  }
  // From the highest op down: inputs that are not held must be made before it.
  const std::size_t first_step = sequence_.size();
  for (std::size_t w = top_word + 1; w-- > lowest_word_;) {
    while (wanted_[w] != 0) {
      const auto bit = static_cast<std::size_t>(63 - std::countl_zero(wanted_[w]));
      wanted_[w] &= ~(std::uint64_t{1} << bit);
      const OpId op(w * 64 + bit);
      sequence_.push_back(op);
      for (ValueId v : stages_.reads[op]) {
        if (!keep.get(stage, v) && !demand(OpId(stages_.producer[v]), stage)) return false;
      }
    }
  }
  std::reverse(sequence_.begin() + static_cast<std::ptrdiff_t>(first_step), sequence_.end());
  stage_of_.resize(sequence_.size(), static_cast<std::uint32_t>(stage));
  return true;
}

void StageEvaluator::measure(Bytes budget, Score& score) {
  Bytes live = 0;
  for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
    needed_[v] = stages_.output[v];
    if (stages_.output[v]) live += stages_.bytes[v];
  }
  memory_.resize(sequence_.size());
  score.peak = live;
  peak_step_ = sequence_.empty() ? 0 : sequence_.size() - 1;
  std::uint32_t stage = UINT32_MAX;
  Bytes stage_peak = 0;
  for (std::size_t s = sequence_.size(); s-- > 0;) {
    const OpId op = sequence_[s];
    Bytes during = live + stages_.workspace[op];
    for (ValueId v : stages_.makes[op]) {
      (needed_[v] ? live : during) += needed_[v] ? -stages_.bytes[v] : stages_.bytes[v];
      needed_[v] = 0;
    }
    for (ValueId v : stages_.reads[op]) {
      if (needed_[v]) continue;
      needed_[v] = 1;
      live += stages_.bytes[v];
      during += stages_.bytes[v];
    }
    memory_[s] = during;
    if (during > score.peak) {
      score.peak = during;
      peak_step_ = s;
    }
    if (stage_of_[s] != stage) {
      score.overflow += std::max<Bytes>(0, stage_peak - budget);
      stage = stage_of_[s];
      stage_peak = 0;
    }
    stage_peak = std::max(stage_peak, during);
  }
  score.overflow += std::max<Bytes>(0, stage_peak - budget);
}

std::optional<Score> StageEvaluator::evaluate(const KeepMatrix& keep, Bytes budget) {
  sequence_.clear();
  stage_of_.clear();
  for (std::size_t stage = 0; stage < stages_.num_ops; ++stage) {
    if (add_stage(keep, stage)) continue;
    std::fill(wanted_.begin(), wanted_.end(), 0);
    return std::nullopt;
  }
  Score score{.cost = stages_.base_cost};
  for (std::size_t s = 0; s < sequence_.size(); ++s) {
    if (sequence_[s].index() != stage_of_[s]) score.cost += stages_.rerun_cost[sequence_[s]];
  }
  measure(budget, score);
  return score;
}

}  // namespace regen::search
