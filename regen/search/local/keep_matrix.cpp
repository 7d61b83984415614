#include "regen/search/local/keep_matrix.h"

namespace regen::search {

KeepMatrix keep_everything(const StageProblem& stages) {
  KeepMatrix keep(stages.num_ops, stages.num_values);
  for (ValueId v : IdRange<ValueId>(stages.num_values)) {
    const auto readers = stages.readers[v];
    std::size_t last = readers.empty() ? stages.producer[v] : readers.back().index();
    if (stages.output[v]) last = stages.num_ops;
    keep.set(v, stages.producer[v] + 1, last);
  }
  return keep;
}

KeepMatrix keep_of_sequence(const StageProblem& stages, const std::vector<OpId>& sequence) {
  KeepMatrix keep(stages.num_ops, stages.num_values);
  // The stage of each step: how many ops have run for the first time before it.
  std::vector<std::size_t> stage_of(sequence.size());
  IdVector<OpId, char> seen(stages.num_ops, 0);
  std::size_t stage = 0;
  for (std::size_t s = 0; s < sequence.size(); ++s) {
    stage_of[s] = stage;
    if (!seen[sequence[s]]) ++stage;
    seen[sequence[s]] = 1;
  }
  // Backwards: a value is held from a step that makes it to the last one that reads it.
  IdVector<ValueId, std::size_t> needed_in(stages.num_values,
                                           0);  // 0: not needed; else stage + 1
  for (ValueId v : IdRange<ValueId>(stages.num_values)) {
    if (stages.output[v]) needed_in[v] = stages.num_ops + 1;
  }
  for (std::size_t s = sequence.size(); s-- > 0;) {
    for (ValueId v : stages.makes[sequence[s]]) {
      if (needed_in[v] > 0) keep.set(v, stage_of[s] + 1, needed_in[v] - 1);
      needed_in[v] = 0;
    }
    for (ValueId v : stages.reads[sequence[s]]) {
      if (needed_in[v] == 0) needed_in[v] = stage_of[s] + 1;
    }
  }
  return keep;
}

}  // namespace regen::search
