#include "regen/search/bounds/pending_gradient_bound.h"

#include <algorithm>
#include <map>
#include <queue>

namespace regen::search {
namespace {

// About half a second. Problems that are solved at all mostly need a few thousand.
constexpr std::size_t kMostStates = 50'000;
// A state costs about as much as this many steps of an evaluated schedule.
constexpr std::int64_t kWorkPerState = 200;

// The relaxed problem is solved backwards, from the end of the step, where only outputs wait, to
// its beginning. Then the only decisions are what to recompute, not what to drop and when.
struct State {
  std::size_t stage = 0;         // the ops below have still to be taken back for the last time
  std::vector<ValueId> waiting;  // ascending; each made by an op below

  auto operator<=>(const State&) const = default;
};

class PendingGradients {
 public:
  PendingGradients(const StageProblem& stages, Effort& effort) : stages_(stages), effort_(effort) {}

  // The path with the lowest maximum: by ascending height, and towards the goal among equals.
  Bytes least_peak() {
    State end{.stage = stages_.num_ops};
    for (ValueId v : IdRange<ValueId>(stages_.num_values)) {
      if (waits(v) && stages_.output[v]) end.waiting.push_back(v);
    }
    reach(std::move(end), least_of_every_op());
    for (;;) {  // until the beginning is reached: a first run can always be taken back
      const auto [peak, state] = open_.top();
      open_.pop();
      // Whatever is still open is at least as high.
      if (state->first.stage == 0 || peaks_.size() > kMostStates || effort_.exhausted()) {
        return peak;
      }
      if (peak > state->second) continue;
      effort_.add(kWorkPerState);
      expand(state->first, peak);
    }
  }

 private:
  using Peaks = std::map<State, Bytes>;
  struct Open {
    Bytes peak = 0;
    Peaks::const_iterator state;

    bool operator<(const Open& other) const {
      return peak != other.peak ? peak > other.peak : state->first.stage > other.state->first.stage;
    }
  };

  bool waits(ValueId v) const {
    return stages_.graph->phase(OpId(stages_.producer[v])) != Phase::kForward;
  }

  // Everything the op touches, and what else waits.
  Bytes memory(OpId op, const std::vector<ValueId>& waiting) const {
    Bytes bytes = stages_.workspace[op];
    for (ValueId v : stages_.reads[op]) bytes += stages_.bytes[v];
    for (ValueId v : stages_.makes[op]) bytes += stages_.bytes[v];
    for (ValueId v : waiting) {
      const bool touched = std::ranges::find(stages_.reads[op], v) != stages_.reads[op].end() ||
                           stages_.producer[v] == op.index();
      if (!touched) bytes += stages_.bytes[v];
    }
    return bytes;
  }

  Bytes least_of_every_op() const {
    Bytes most = 0;
    for (OpId op : stages_.graph->ops()) most = std::max(most, memory(op, {}));
    return most;
  }

  void reach(State state, Bytes peak) {
    const auto [entry, inserted] = peaks_.try_emplace(std::move(state), peak);
    if (!inserted && entry->second <= peak) return;
    entry->second = peak;
    open_.push({peak, entry});
  }

  // To before a run of `op`: what it makes need not be there, what it reads must.
  void take_back(OpId op, std::size_t stage, const State& after, Bytes peak) {
    State before{.stage = stage};
    for (ValueId v : after.waiting) {
      if (stages_.producer[v] != op.index()) before.waiting.push_back(v);
    }
    for (ValueId v : stages_.reads[op]) {
      if (waits(v)) before.waiting.push_back(v);
    }
    std::ranges::sort(before.waiting);
    before.waiting.erase(std::unique(before.waiting.begin(), before.waiting.end()),
                         before.waiting.end());
    reach(std::move(before), std::max(peak, memory(op, after.waiting)));
  }

  void expand(const State& state, Bytes peak) {
    take_back(OpId(state.stage - 1), state.stage - 1, state, peak);
    for (ValueId v : state.waiting) {
      const OpId op(stages_.producer[v]);
      if (stages_.may_run_again(op, state.stage)) take_back(op, state.stage, state, peak);
    }
  }

  const StageProblem& stages_;
  Effort& effort_;
  Peaks peaks_;
  std::priority_queue<Open> open_;
};

}  // namespace

Bytes pending_gradient_bound(const StageProblem& stages, Effort& effort) {
  return PendingGradients(stages, effort).least_peak();
}

}  // namespace regen::search
