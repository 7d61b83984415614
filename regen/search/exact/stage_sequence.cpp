#include "regen/search/exact/stage_sequence.h"

#include <algorithm>

namespace regen::search {
namespace {

class Realisation {
 public:
  Realisation(const StageProblem& stages, const CarriedInto& carried_into)
      : stages_(stages), carried_into_(carried_into), wanted_(stages.num_ops, 0) {}

  std::optional<std::vector<OpId>> run() && {
    for (std::size_t stage = 0; stage < stages_.num_ops; ++stage) {
      if (!add_stage(stage)) return std::nullopt;
    }
    return std::move(sequence_);
  }

 private:
  bool begins_with(std::size_t stage, ValueId v) const {
    return stages_.producer[v] < stage && stage <= stages_.useful_until[v] &&
           carried_into_(stage, v);
  }

  bool want(OpId op, std::size_t stage) {
    wanted_[op] = 1;
    return op.index() == stage || stages_.may_run_again(op, stage);
  }

  // From the highest op down: what an op reads is made by lower ones.
  bool add_stage(std::size_t stage) {
    bool possible = want(OpId(stage), stage);
    for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
      if (begins_with(stage + 1, v) && !begins_with(stage, v)) {
        possible &= want(OpId(stages_.producer[v]), stage);
      }
    }
    const auto first = static_cast<std::ptrdiff_t>(sequence_.size());
    for (std::size_t i = stage + 1; i-- > 0 && possible;) {
      const OpId op(i);
      if (!wanted_[op]) continue;
      wanted_[op] = 0;
      sequence_.push_back(op);
      for (ValueId v : stages_.reads[op]) {
        if (!begins_with(stage, v)) possible &= want(OpId(stages_.producer[v]), stage);
      }
    }
    std::reverse(sequence_.begin() + first, sequence_.end());
    return possible;
  }

  const StageProblem& stages_;
  const CarriedInto& carried_into_;
  IdVector<OpId, char> wanted_;
  std::vector<OpId> sequence_;
};

}  // namespace

std::optional<std::vector<OpId>> sequence_of_stages(const StageProblem& stages,
                                                    const CarriedInto& carried_into) {
  return Realisation(stages, carried_into).run();
}

}  // namespace regen::search
