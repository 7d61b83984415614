#include "tests/support/step_oracle.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace regen::testing {
namespace {

using Set = std::uint32_t;  // of ops, which are the values they make

struct Node {
  Set reads = 0;
  Bytes bytes = 0, workspace = 0;
  double cost = 0, again = 0;
  bool repeatable = false;
  bool output = false;
};

std::vector<Node> nodes_of(const Graph& graph, bool gradients_again) {
  std::vector<Node> nodes;
  for (OpId op : graph.ops()) {
    const VariantId v = graph.default_variant(op);
    if (graph.makes(v).size() != 1 || graph.variants(op).size() != 1) std::abort();
    const TensorId made = graph.makes(v)[0];
    Node node{.bytes = graph.bytes(made),
              .workspace = graph.workspace(v),
              .cost = graph.cost(v),
              .again = graph.rerun_cost(v),
              .repeatable =
                  graph.recomputable(op) && (gradients_again || graph.phase(op) == Phase::kForward),
              .output = graph.kind(made) == TensorKind::kOutput};
    for (TensorId t : graph.reads(v)) {
      if (!graph.fixed(t)) node.reads |= Set{1} << graph.producer(t).index();
    }
    nodes.push_back(node);
  }
  return nodes;
}

// A copy queue: when it is empty, and the last two values that joined since the clock moved.
struct Queue {
  double free = 0;
  int last = -1, before = -1;
};

// Where a list has come to.
struct State {
  std::uint32_t done = 0;  // first runs
  Set device = 0;
  Set host = 0;
  Set given_up = 0;  // host copies that go once their last fetch is waited for
  double clock = 0;
  std::vector<double> offload_end, fetch_end;  // by value
  Queue to_host, to_device;
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
      : nodes_(nodes_of(graph, limits.gradients_again)),
        limits_(limits),
        cutoff_(cutoff),
        most_work_(most_work) {}

  StepOptimum run() {
    State start;
    start.offload_end.assign(nodes_.size(), 0);
    start.fetch_end.assign(nodes_.size(), 0);
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
    for (std::size_t i = state.done; i < nodes_.size(); ++i) {
      sum += nodes_[i].cost;
      wanted |= nodes_[i].reads;
    }
    for (std::size_t i = state.done; i-- > 0;) {
      if (nodes_[i].output) wanted |= Set{1} << i;
      if (!((wanted & ~state.device & ~state.host) >> i & 1)) continue;
      if (!nodes_[i].repeatable) return std::numeric_limits<double>::infinity();
      sum += nodes_[i].again;
      wanted |= nodes_[i].reads;
    }
    return sum;
  }

  void expand(const State& state) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (i == state.done || (i < state.done && nodes_[i].repeatable)) compute(state, i);
      const Set bit = Set{1} << i;
      if ((state.device & bit) && !limits_.only_late) visit(released(state, i));
      if (!limits_.link.can_move()) continue;
      if ((state.device & bit) && !(state.host & bit)) offload(state, i);
      if (!(state.device & bit) && (state.host & bit) && !(state.given_up & bit)) fetch(state, i);
    }
  }

  Bytes sum(Set values) const {
    Bytes bytes = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (values >> i & 1) bytes += nodes_[i].bytes;
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
    for (std::size_t v = from; v < nodes_.size() && limits_.only_late; ++v) {
      if (!((state.device & ~stays) >> v & 1) || nodes_[v].bytes == 0) continue;
      const State next = released(state, v);
      if (next.clock > state.clock && !all_started(next)) continue;
      make_room(next, missing - nodes_[v].bytes, stays, v + 1, then);
    }
  }

  void compute(const State& state, std::size_t i) {
    const Node& node = nodes_[i];
    const Set made = Set{1} << i;
    if ((node.reads & ~state.device) != 0) return;
    const Bytes missing = sum(state.device | made) + node.workspace - limits_.budget;
    make_room(state, missing, node.reads | made, 0, [&](const State& ready) { run(ready, i); });
  }

  void run(State state, std::size_t i) {
    const Node& node = nodes_[i];
    const Set bit = Set{1} << i;
    double time = state.clock;
    for (std::size_t v = 0; v < nodes_.size(); ++v) {
      if (node.reads >> v & 1) time = std::max(time, state.fetch_end[v]);
    }
    state.host &= ~(state.given_up & node.reads);
    state.given_up &= ~node.reads;
    state.device |= bit;
    move_clock(state, time + (i == state.done ? node.cost : node.again));
    state.done += i == state.done ? 1 : 0;
    if (all_started(state)) visit(std::move(state));
  }

  // False if a copy has joined that could have joined later.
  bool all_started(const State& state) const {
    if (!limits_.only_late) return true;
    for (std::size_t v = 0; v < nodes_.size(); ++v) {
      const auto bytes = static_cast<double>(nodes_[v].bytes);
      const double out = bytes / limits_.link.to_host;
      const double in = bytes / limits_.link.to_device;
      if (out > 0 && state.offload_end[v] - out >= state.clock) return false;
      if (in > 0 && state.fetch_end[v] - in >= state.clock) return false;
    }
    return true;
  }

  static State released(State state, std::size_t v) {
    const Set bit = Set{1} << v;
    move_clock(state, std::max({state.clock, state.offload_end[v], state.fetch_end[v]}));
    state.device &= ~bit;
    if (state.given_up & bit) {
      state.host &= ~bit;
      state.given_up &= ~bit;
    }
    return state;
  }

  bool join(const State& state, Queue& queue, std::size_t v, double bandwidth) const {
    const bool nothing_to_gain = nodes_[v].bytes == 0;
    if (limits_.only_late && (nothing_to_gain || queue.before > queue.last)) return false;
    queue.before = queue.last;
    queue.last = static_cast<int>(v);
    queue.free =
        std::max(state.clock, queue.free) + static_cast<double>(nodes_[v].bytes) / bandwidth;
    return true;
  }

  static void move_clock(State& state, double time) {
    if (time == state.clock) return;
    state.clock = time;
    state.to_host.last = state.to_host.before = -1;
    state.to_device.last = state.to_device.before = -1;
  }

  void offload(State state, std::size_t v) {
    const Set bit = Set{1} << v;
    state.host |= bit;
    if (limits_.host_budget && sum(state.host) > *limits_.host_budget) return;
    if (!join(state, state.to_host, v, limits_.link.to_host)) return;
    state.offload_end[v] = state.to_host.free;
    visit(std::move(state));
  }

  void fetch(const State& state, std::size_t v) {
    const Bytes missing = sum(state.device) + nodes_[v].bytes - limits_.budget;
    make_room(state, missing, 0, 0, [&](const State& ready) { start_fetch(ready, v); });
  }

  void start_fetch(State state, std::size_t v) {
    const Set bit = Set{1} << v;
    state.device |= bit;
    if (!join(state, state.to_device, v, limits_.link.to_device)) return;
    state.fetch_end[v] = state.to_device.free;
    if (limits_.host_budget) {
      State last = state;
      last.given_up |= bit;
      visit(std::move(last));
    }
    visit(std::move(state));
  }

  bool finished(const State& state) const {
    if (state.done < nodes_.size()) return false;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].output && !(state.device >> i & 1)) return false;
    }
    return true;
  }

  // Whether everything in `a` has happened or will end no later than in `b`.
  static bool no_later(const State& a, const State& b) {
    if (a.clock > b.clock) return false;
    const auto fine = [&](double of_a, double of_b) { return of_a <= std::max(of_b, b.clock); };
    for (std::size_t i = 0; i < a.offload_end.size(); ++i) {
      if (!fine(a.offload_end[i], b.offload_end[i])) return false;
      if (!fine(a.fetch_end[i], b.fetch_end[i])) return false;
    }
    return fine(a.to_host.free, b.to_host.free) && fine(a.to_device.free, b.to_device.free);
  }

  // Values that no op can want any more leave, unless a copy of them is under way.
  void forget_dead(State& state) const {
    Set wanted = 0;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (i >= state.done || nodes_[i].repeatable) wanted |= nodes_[i].reads;
      if (nodes_[i].output) wanted |= Set{1} << i;
    }
    for (std::size_t v = 0; v < state.done; ++v) {
      const bool copied = std::max(state.offload_end[v], state.fetch_end[v]) > state.clock;
      if (!(wanted >> v & 1) && !copied) state.device &= ~(Set{1} << v);
    }
  }

  void visit(State state) {
    forget_dead(state);
    const double cost = state.clock + to_come(state);
    if (cost >= std::min(cutoff_, best_)) return;
    if (finished(state)) {
      best_ = std::min(best_, std::max({state.clock, state.to_host.free, state.to_device.free}));
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

  const std::vector<Node> nodes_;
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
