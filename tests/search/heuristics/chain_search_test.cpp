// The planner `chain` against a search over machine states on chains of up to 9 layers. The search
// has no ranges: it goes through the step from its beginning to its end, at every sweep
// decides for each value whether to keep it and for what, and adds up what lies in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <set>

#include "tests/support/graphs/random_chain.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/planners/pareto.h"

namespace regen::search {
namespace {

using testing::ChainLayer;
using testing::ParetoFront;
using testing::RandomChain;

// What a value waits for; each reason includes those before it.
enum Reason : char { kNobody, kNextLayer, kEarlyPart, kLatePart };

// What waits in memory between two parts of the backward pass.
struct State {
  std::array<char, 9> value{};  // Reason
  std::array<char, 9> mask{};   // 1: waits for the late part

  auto operator<=>(const State&) const = default;
};

using States = std::map<State, ParetoFront>;

class StateSearch {
 public:
  explicit StateSearch(const RandomChain& chain)
      : chain_(chain), graph_(chain.graph), n_(chain.layers.size()), parts_(chain.parts()) {}

  ParetoFront run() {
    States states;
    states[State{}].add(0, 0);
    for (std::size_t b = n_; b-- > 0;) {
      block_ = b;
      if (!parts_.early[b].empty()) states = advance(states, /*early=*/true);
      states = advance(states, /*early=*/false);
    }
    return states.begin()->second;
  }

 private:
  struct Walk {
    State state;
    Bytes peak = 0;
    double cost = 0;
  };

  bool reads(const std::vector<OpId>& ops, TensorId t) const {
    return t.valid() && std::ranges::any_of(ops, [&](OpId op) {
             return std::ranges::count(graph_.inputs(op), t) > 0;
           });
  }
  bool late_reads_value(std::size_t b) const {
    return reads(parts_.late[b], chain_.layers[b].value);
  }
  bool late_reads_mask(std::size_t b) const { return reads(parts_.late[b], chain_.layers[b].mask); }
  bool late_reads_input(std::size_t b) const {
    return b > 0 && reads(parts_.late[b], chain_.layers[b - 1].value);
  }
  Bytes bytes(TensorId t) const { return t.valid() ? graph_.bytes(t) : 0; }
  // Whether everything that layer b still has to read of itself is waiting for it.
  bool secured(const State& state, std::size_t b, bool early_pending) const {
    if (early_pending && !parts_.early[b].empty() && state.value[b] < kEarlyPart) return false;
    if (late_reads_value(b) && state.value[b] < kLatePart) return false;
    return !late_reads_mask(b) || state.mask[b];
  }
  // A value waits for the next layer in order to reach the layers up to the next value that waits;
  // if none of them lacks anything, it need not. Pending are the layers below `end`, of the last
  // of them the early part if `early_pending`.
  void drop_useless(State& state, std::size_t end, bool early_pending) const {
    for (std::size_t b = 1; b < end; ++b) {
      if (state.value[b - 1] != kNextLayer) continue;
      bool needed = false;
      for (std::size_t x = b; x < end && !needed; ++x) {
        needed = !secured(state, x, x + 1 < end || early_pending) || late_reads_input(x);
        if (state.value[x] != kNobody) break;
      }
      if (!needed) state.value[b - 1] = kNobody;
    }
  }

  Bytes forward_bytes(const State& state) const {
    Bytes sum = 0;
    for (std::size_t b = 0; b < n_; ++b) {
      if (state.value[b] != kNobody) sum += bytes(chain_.layers[b].value);
      if (state.mask[b]) sum += bytes(chain_.layers[b].mask);
    }
    return sum;
  }
  // What the backward pass has made up to op `before` and still needs, or what must stay.
  Bytes backward_bytes(OpId before) const {
    Bytes sum = graph_.fixed_bytes();
    for (TensorId t : graph_.tensors()) {
      const OpId maker = graph_.producer(t);
      if (!maker.valid() || maker < chain_.loss || maker >= before) continue;
      const bool needed = !graph_.consumers(t).empty() && graph_.consumers(t).back() >= before;
      if (needed || graph_.kind(t) == TensorKind::kOutput) sum += bytes(t);
    }
    return sum;
  }

  States advance(const States& states, bool early) {
    early_ = early;
    States next;
    for (const auto& [state, front] : states) {
      found_.clear();
      if (ready(state) && !first_pass()) {
        finish({.state = state});
      } else {
        sweep_from(state);
      }
      for (const auto& [after, ways] : found_) {
        for (const auto& [way_peak, way_cost] : ways.points()) {
          for (const auto& [peak, cost] : front.points()) {
            next[after].add(std::max(peak, way_peak), cost + way_cost);
          }
        }
      }
    }
    return next;
  }

  const std::vector<OpId>& part() const {
    return early_ ? parts_.early[block_] : parts_.late[block_];
  }
  bool first_pass() const { return block_ + 1 == n_; }
  // What the part reads is there, the input of the block aside.
  bool block_ready(const State& state) const {
    if (reads(part(), chain_.layers[block_].value) && state.value[block_] == kNobody) return false;
    return early_ || !late_reads_mask(block_) || state.mask[block_];
  }
  bool ready(const State& state) const {
    const bool input = !early_ && late_reads_input(block_);
    return block_ready(state) && (!input || state.value[block_ - 1] != kNobody);
  }

  struct Choice {
    Reason reason = kNobody;
    bool mask = false;
  };

  void sweep_from(const State& state) {
    std::size_t start = block_;
    while (start > 0 && state.value[start - 1] == kNobody) --start;
    const std::size_t end = block_ready(state) && !first_pass() ? block_ : block_ + 1;
    std::vector<Choice> choices;
    choose(state, start, end, choices);
  }

  // Goes through all choices of what to keep of the layers from `start` to `end`.
  void choose(const State& state, std::size_t start, std::size_t end,
              std::vector<Choice>& choices) {
    const std::size_t i = start + choices.size();
    if (i == end) return run_layers(state, start, choices);
    const bool input_waits = choices.empty() || choices.back().reason != kNobody;
    for (const Reason reason : {kNobody, kNextLayer, kEarlyPart, kLatePart}) {
      for (const bool mask : {false, true}) {
        if (!allowed(i, reason, mask, input_waits)) continue;
        // The input of the block that is reversed has to be there for it.
        if (i + 1 == block_ && end == block_ && reason == kNobody) continue;
        choices.push_back({reason, mask});
        choose(state, start, end, choices);
        choices.pop_back();
      }
    }
  }

  bool allowed(std::size_t i, Reason reason, bool mask, bool input_waits) const {
    const bool early = !parts_.early[i].empty() && (i < block_ || early_);
    if (reason == kEarlyPart && !early) return false;
    if (reason == kLatePart && !late_reads_value(i)) return false;
    if (mask && !late_reads_mask(i)) return false;
    const bool all = (!early || reason >= kEarlyPart) &&
                     (!late_reads_value(i) || reason == kLatePart) && (!late_reads_mask(i) || mask);
    // To keep a mask means to keep everything, which is for layers whose input waits.
    if (mask && !(all && input_waits && (reason != kNobody || i == block_))) return false;
    if (i < block_) return true;
    if (reason == kNextLayer) return false;
    // Without the input only the early part can be the aim.
    return (all && input_waits) || (early_ && reason >= kEarlyPart);
  }

  void run_layers(const State& state, std::size_t start, const std::vector<Choice>& choices) {
    Walk walk{.state = state};
    for (std::size_t k = 0; k < choices.size(); ++k) {
      char& reason = walk.state.value[start + k];
      reason = std::max<char>(reason, choices[k].reason);
      walk.state.mask[start + k] = choices[k].mask;
    }
    drop_useless(walk.state, block_ + 1, early_);
    const Bytes behind = first_pass() ? graph_.fixed_bytes() : backward_bytes(part().front());
    for (std::size_t k = 0; k < choices.size(); ++k) {
      const std::size_t i = start + k;
      const ChainLayer& layer = chain_.layers[i];
      const VariantId v = graph_.default_variant(layer.forward);
      // What waits in the end and was there before, or has been made by this sweep so far.
      State now = walk.state;
      for (std::size_t later = i + 1; later < start + choices.size(); ++later) {
        now.value[later] = std::min(now.value[later], state.value[later]);
        now.mask[later] = std::min(now.mask[later], state.mask[later]);
      }
      // While the layer runs, its input and all it makes are there, whether they wait or not.
      now.value[i] = kNextLayer;
      now.mask[i] = 1;
      if (i > 0) now.value[i - 1] = kNextLayer;
      walk.peak = std::max(walk.peak, forward_bytes(now) + behind + graph_.workspace(v));
      walk.cost += first_pass() ? graph_.cost(v) : graph_.rerun_cost(v);
    }
    finish(walk);
  }

  // Runs the part; what waits for it goes after its last reader.
  void finish(Walk walk) {
    const ChainLayer& layer = chain_.layers[block_];
    State after = walk.state;
    if (early_) {
      if (after.value[block_] == kEarlyPart) after.value[block_] = kNobody;
    } else {
      after.value[block_] = kNobody;
      after.mask[block_] = 0;
      if (block_ > 0 && after.value[block_ - 1] == kNextLayer) after.value[block_ - 1] = kNobody;
    }
    const std::vector<OpId>& ops = part();
    for (std::size_t k = 0; k < ops.size(); ++k) {
      const VariantId v = graph_.default_variant(ops[k]);
      const std::vector<OpId> rest(ops.begin() + static_cast<std::ptrdiff_t>(k), ops.end());
      Bytes live = forward_bytes(after) + backward_bytes(ops[k]) + graph_.workspace(v);
      for (TensorId t : graph_.makes(v)) live += bytes(t);
      const auto waits = [&](char was, char is, TensorId t) {
        return was && !is && reads(rest, t) ? bytes(t) : 0;
      };
      live += waits(walk.state.value[block_], after.value[block_], layer.value);
      live += waits(walk.state.mask[block_], after.mask[block_], layer.mask);
      if (block_ > 0) {
        live += waits(walk.state.value[block_ - 1], after.value[block_ - 1],
                      chain_.layers[block_ - 1].value);
      }
      walk.peak = std::max(walk.peak, live);
      walk.cost += graph_.cost(v);
    }
    drop_useless(after, early_ ? block_ + 1 : block_, !early_);
    found_[after].add(walk.peak, walk.cost);
  }

  const RandomChain& chain_;
  const Graph& graph_;
  const std::size_t n_;
  const RandomChain::Parts parts_;
  std::size_t block_ = 0;  // whose part is next,
  bool early_ = false;     // and which
  States found_;           // ways through one part from one state
};

// All 2,000 chains take minutes; REGEN_EXHAUSTIVE=1 asks for them.
TEST(ChainSearch, EqualsExhaustiveSearchOnRandomChains) {
  const bool all = testing::exhaustive();
  for (std::uint64_t seed = 0; seed < 2000; seed += all ? 1 : 10) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(testing::first_seed() + seed);
    const RandomChain chain = testing::random_chain(random, {.max_layers = 9});
    testing::expect_planner_on_front("chain", chain.graph, StateSearch(chain).run());
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace regen::search
