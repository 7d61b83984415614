// The values that each stage begins with: the matrix S of a stage schedule, one bit for each value
// in each of T + 1 rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/search/exact/stage_problem.h"

namespace regen::search {

class KeepMatrix {
 public:
  KeepMatrix() = default;
  KeepMatrix(std::size_t num_ops, std::size_t num_values)
      : words_((num_values + 63) / 64), bits_(words_ * (num_ops + 1), 0) {}

  bool get(std::size_t stage, ValueId v) const {
    return (bits_[word(stage, v)] >> (v.index() % 64)) & 1;
  }
  void set(std::size_t stage, ValueId v) { bits_[word(stage, v)] |= mask(v); }
  void clear(std::size_t stage, ValueId v) { bits_[word(stage, v)] &= ~mask(v); }
  // Stages first..last, both included.
  void set(ValueId v, std::size_t first, std::size_t last) {
    for (std::size_t stage = first; stage <= last; ++stage) set(stage, v);
  }
  void clear(ValueId v, std::size_t first, std::size_t last) {
    for (std::size_t stage = first; stage <= last; ++stage) clear(stage, v);
  }
  std::span<const std::uint64_t> row(std::size_t stage) const {
    return {bits_.data() + stage * words_, words_};
  }

  bool operator==(const KeepMatrix&) const = default;

 private:
  static std::uint64_t mask(ValueId v) { return std::uint64_t{1} << (v.index() % 64); }
  std::size_t word(std::size_t stage, ValueId v) const { return stage * words_ + v.index() / 64; }

  std::size_t words_ = 0;
  std::vector<std::uint64_t> bits_;
};

// Every value from its making to the last first run of a reader, outputs to the end.
KeepMatrix keep_everything(const StageProblem& stages);

// What a valid sequence of ops holds between its first runs. If the sequence is a stage schedule,
// evaluating the result gives the same sequence.
KeepMatrix keep_of_sequence(const StageProblem& stages, const std::vector<OpId>& sequence);

}  // namespace regen::search
