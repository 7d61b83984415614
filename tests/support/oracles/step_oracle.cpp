#include "tests/support/oracles/step_oracle.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace regen::testing {
namespace {

using Set = std::uint32_t;  // of values

struct Node {
  Set reads = 0, makes = 0;
  Bytes workspace = 0;
  double cost = 0, again = 0;
  // As long as at most so many first runs are done: no longer when an op has changed what it reads.
  std::size_t repeatable_until = 0;
};

// The graph as sets of values, which are numbered in the order in which they are made.
struct Nodes {
  Nodes(const Graph& graph, bool gradients_again) {
    std::vector<Set> value_of(graph.num_tensors(), 0);
    std::vector<std::size_t> changed_by(graph.num_tensors(), SIZE_MAX);
    for (OpId op : graph.ops()) {
      for (TensorId t : graph.mutates(op)) {
        changed_by[t.index()] = std::min(changed_by[t.index()], op.index());
      }
    }
    for (OpId op : graph.ops()) {
      const VariantId v = graph.default_variant(op);
      if (graph.variants(op).size() != 1) std::abort();
      Node node{
          .workspace = graph.workspace(v), .cost = graph.cost(v), .again = graph.rerun_cost(v)};
      if (graph.recomputable(op) && (gradients_again || graph.phase(op) == Phase::kForward)) {
        node.repeatable_until = SIZE_MAX;
        for (TensorId t : graph.inputs(op)) {
          node.repeatable_until = std::min(node.repeatable_until, changed_by[t.index()]);
        }
      }
      for (TensorId t : graph.reads(v)) node.reads |= value_of[t.index()];
      for (TensorId t : graph.makes(v)) {
        if (bytes.size() == std::numeric_limits<Set>::digits) std::abort();
        const Set value = Set{1} << bytes.size();
        value_of[t.index()] = value;
        node.makes |= value;
        bytes.push_back(graph.bytes(t));
        if (graph.kind(t) == TensorKind::kOutput) outputs |= value;
      }
      ops.push_back(node);
    }
  }

  std::vector<Node> ops;
  std::vector<Bytes> bytes;  // by value
  Set outputs = 0;
};

// Where a list has come to.
struct State {
  std::uint32_t done = 0;  // first runs
  Set device = 0;
  Set host = 0;
  Set given_up = 0;  // host copies that go once their last fetch is waited for
  double clock = 0;
  std::vector<double> offload_end, fetch_end;  // by value
  double to_host = 0, to_device = 0;           // when each copy queue is empty
};

using Key = std::tuple<std::uint32_t, Set, Set, Set>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t h = std::get<0>(key);
    for (const Set s : {std::get<1>(key), std::get<2>(key), std::get<3>(key)}) {
      h = (h ^ s) * 0xff51afd7ed558ccdULL;
      h ^= h >> 31;
    }
    return h;
  }
};

class Oracle {
 public:
  Oracle(const Graph& graph, const StepLimits& limits, double cutoff, std::size_t most_work)
      : nodes_(graph, limits.gradients_again),
        limits_(limits),
        cutoff_(cutoff),
        most_work_(most_work) {}

  StepOptimum run() {
    State start;
    start.offload_end.assign(nodes_.bytes.size(), 0);
    start.fetch_end.assign(nodes_.bytes.size(), 0);
    visit(start);
    while (!queue_.empty()) {
      const auto [cost, index] = queue_.top();
      queue_.pop();
      const State state = states_[index];
      if (cost >= best_) break;
      if (beaten_[index]) continue;
      if (work_ > most_work_) return {};
      expand(state);
    }
    StepOptimum result{.complete = true};
    if (best_ < cutoff_) result.cost = best_;
    return result;
  }

 private:
  // First runs to come, and re-runs of what they read, or what those read, that is nowhere.
  double to_come(const State& state) const {
    double sum = 0;
    Set wanted = 0;
    for (std::size_t i = state.done; i < nodes_.ops.size(); ++i) {
      sum += nodes_.ops[i].cost;
      wanted |= nodes_.ops[i].reads;
    }
    wanted |= nodes_.outputs;
    for (std::size_t i = state.done; i-- > 0;) {
      const Node& node = nodes_.ops[i];
      if ((wanted & ~state.device & ~state.host & node.makes) == 0) continue;
      if (state.done > node.repeatable_until) return std::numeric_limits<double>::infinity();
      sum += node.again;
      wanted |= node.reads;
    }
    return sum;
  }

  void expand(const State& state) {
    for (std::size_t i = 0; i < nodes_.ops.size(); ++i) {
      if (i == state.done || (i < state.done && state.done <= nodes_.ops[i].repeatable_until))
        compute(state, i);
    }
    for (std::size_t v = 0; v < nodes_.bytes.size(); ++v) {
      const Set bit = Set{1} << v;
      if ((state.device & bit) && !limits_.only_late) visit(released(state, v));
      if (!limits_.link.can_move()) continue;
      if ((state.device & bit) && !(state.host & bit)) offload(state, v);
      if (!(state.device & bit) && (state.host & bit) && !(state.given_up & bit)) fetch(state, v);
    }
  }

  Bytes sum(Set values) const {
    Bytes bytes = 0;
    for (std::size_t v = 0; v < nodes_.bytes.size(); ++v) {
      if (values >> v & 1) bytes += nodes_.bytes[v];
    }
    return bytes;
  }

  // Releases one value after the other, in the order of their numbers, until `missing` bytes are
  // free.
  template <typename Then>
  void make_room(const State& state, Bytes missing, Set stays, std::size_t from, Then then) {
    if (missing <= 0) {
      then(state);
      return;
    }
    for (std::size_t v = from; v < nodes_.bytes.size() && limits_.only_late; ++v) {
      if (!((state.device & ~stays) >> v & 1) || nodes_.bytes[v] == 0) continue;
      const State next = released(state, v);
      make_room(next, missing - nodes_.bytes[v], stays, v + 1, then);
    }
  }

  void compute(const State& state, std::size_t i) {
    const Node& node = nodes_.ops[i];
    if ((node.reads & ~state.device) != 0) return;
    const Bytes missing = sum(state.device | node.makes) + node.workspace - limits_.budget;
    make_room(state, missing, node.reads | node.makes, 0,
              [&](const State& ready) { run(ready, i); });
  }

  void run(State state, std::size_t i) {
    const Node& node = nodes_.ops[i];
    double time = state.clock;
    for (std::size_t v = 0; v < nodes_.bytes.size(); ++v) {
      if (node.reads >> v & 1) time = std::max(time, state.fetch_end[v]);
    }
    state.host &= ~(state.given_up & node.reads);
    state.given_up &= ~node.reads;
    state.device |= node.makes;
    state.clock = time + (i == state.done ? node.cost : node.again);
    state.done += i == state.done ? 1 : 0;
    if (all_started(state)) visit(std::move(state));
  }

  // False if a copy has joined that could have joined later.
  bool all_started(const State& state) const {
    if (!limits_.only_late) return true;
    for (std::size_t v = 0; v < nodes_.bytes.size(); ++v) {
      const auto bytes = static_cast<double>(nodes_.bytes[v]);
      const double out = bytes / limits_.link.to_host;
      const double in = bytes / limits_.link.to_device;
      if (out > 0 && state.offload_end[v] - out >= state.clock) return false;
      if (in > 0 && state.fetch_end[v] - in >= state.clock) return false;
    }
    return true;
  }

  static State released(State state, std::size_t v) {
    const Set bit = Set{1} << v;
    state.clock = std::max({state.clock, state.offload_end[v], state.fetch_end[v]});
    state.device &= ~bit;
    if (state.given_up & bit) {
      state.host &= ~bit;
      state.given_up &= ~bit;
    }
    return state;
  }

  // False where there is nothing to gain.
  bool join(const State& state, double& queue, std::size_t v, double bandwidth) const {
    if (limits_.only_late && nodes_.bytes[v] == 0) return false;
    queue = std::max(state.clock, queue) + static_cast<double>(nodes_.bytes[v]) / bandwidth;
    return true;
  }

  void offload(State state, std::size_t v) {
    const Set bit = Set{1} << v;
    state.host |= bit;
    if (limits_.host_budget && sum(state.host) > *limits_.host_budget) return;
    if (!join(state, state.to_host, v, limits_.link.to_host)) return;
    state.offload_end[v] = state.to_host;
    visit(std::move(state));
  }

  void fetch(const State& state, std::size_t v) {
    const Bytes missing = sum(state.device) + nodes_.bytes[v] - limits_.budget;
    make_room(state, missing, 0, 0, [&](const State& ready) { start_fetch(ready, v); });
  }

  void start_fetch(State state, std::size_t v) {
    const Set bit = Set{1} << v;
    state.device |= bit;
    if (!join(state, state.to_device, v, limits_.link.to_device)) return;
    state.fetch_end[v] = state.to_device;
    if (limits_.host_budget) {
      State last = state;
      last.given_up |= bit;
      visit(std::move(last));
    }
    visit(std::move(state));
  }

  bool finished(const State& state) const {
    return state.done == nodes_.ops.size() && (nodes_.outputs & ~state.device) == 0;
  }

  // Whether everything in `a` has happened or will end no later than in `b`.
  static bool no_later(const State& a, const State& b) {
    if (a.clock > b.clock) return false;
    const auto fine = [&](double of_a, double of_b) { return of_a <= std::max(of_b, b.clock); };
    for (std::size_t i = 0; i < a.offload_end.size(); ++i) {
      if (!fine(a.offload_end[i], b.offload_end[i])) return false;
      if (!fine(a.fetch_end[i], b.fetch_end[i])) return false;
    }
    return fine(a.to_host, b.to_host) && fine(a.to_device, b.to_device);
  }

  // Values that no op can read any more leave, unless a copy of them is under way.
  void forget_dead(State& state) const {
    Set wanted = nodes_.outputs;
    for (std::size_t i = 0; i < nodes_.ops.size(); ++i) {
      if (i >= state.done || state.done <= nodes_.ops[i].repeatable_until)
        wanted |= nodes_.ops[i].reads;
    }
    for (std::size_t v = 0; v < nodes_.bytes.size(); ++v) {
      const bool copied = std::max(state.offload_end[v], state.fetch_end[v]) > state.clock;
      if (!(wanted >> v & 1) && !copied) state.device &= ~(Set{1} << v);
    }
  }

  void visit(State state) {
    forget_dead(state);
    const double cost = state.clock + to_come(state);
    if (cost >= std::min(cutoff_, best_)) return;
    if (finished(state)) {
      best_ = std::min(best_, std::max({state.clock, state.to_host, state.to_device}));
    }
    auto& others = at_[Key{state.done, state.device, state.host, state.given_up}];
    work_ += 2 * others.size() + 1;
    for (const std::size_t other : others) {
      if (no_later(states_[other], state)) return;
    }
    std::erase_if(others, [&](std::size_t other) {
      const bool worse = no_later(state, states_[other]);
      if (worse) beaten_[other] = 1;
      return worse;
    });
    others.push_back(states_.size());
    queue_.emplace(cost, states_.size());
    states_.push_back(std::move(state));
    beaten_.push_back(0);
  }

  const Nodes nodes_;
  const StepLimits limits_;
  const double cutoff_;
  const std::size_t most_work_;
  std::size_t work_ = 0;
  double best_ = std::numeric_limits<double>::infinity();
  std::vector<State> states_;
  std::vector<char> beaten_;
  std::unordered_map<Key, std::vector<std::size_t>, KeyHash> at_;
  std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>,
                      std::greater<>>
      queue_;
};

}  // namespace

StepOptimum cheapest_step_list(const Graph& graph, const StepLimits& limits, double cutoff,
                               std::size_t most_work) {
  return Oracle(graph, limits, cutoff, most_work).run();
}

}  // namespace regen::testing
