#include "tests/support/plans/random_plan.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace regen::testing {
namespace {

struct TensorFlags {
  bool on_device = false;
  bool offloaded = false;  // at some time
  bool fetched = false;    // since the last offload
  bool used = false;       // since the last fetch
  int pins = 0;            // runs in preparation that need it
};

class Walk {
 public:
  Walk(const Graph& graph, Random& random, const RandomPlanOptions& options, double drop)
      : graph_(graph),
        random_(random),
        options_(options),
        drop_(drop),
        tensors_(graph.num_tensors()),
        ran_(graph.num_ops(), false) {}

  std::optional<Plan> run() {
    for (OpId op = pick_ready(); op.valid(); op = pick_ready()) {
      if (!run_op(op, TensorId::none())) return std::nullopt;
      if (random_.chance(drop_)) run_any_again();
    }
    for (TensorId t : graph_.tensors()) {
      if (graph_.kind(t) != TensorKind::kOutput) continue;
      if (!bring(t)) return std::nullopt;
      ++tensors_[t].pins;
    }
    if (std::find(ran_.begin(), ran_.end(), false) != ran_.end()) return std::nullopt;
    return std::move(plan_);
  }

 private:
  // An op that has not run, whose makers of inputs have, and whose turn it is.
  OpId pick_ready() {
    std::vector<OpId> ready;
    for (OpId op : graph_.ops()) {
      if (ran_[op] || !in_turn(op)) continue;
      const auto inputs = graph_.inputs(op);
      const bool fed = std::all_of(inputs.begin(), inputs.end(), [&](TensorId t) {
        return graph_.fixed(t) || ran_[graph_.producer(t)];
      });
      if (fed) ready.push_back(op);
    }
    return ready.empty() ? OpId::none() : any(ready);
  }

  template <typename T>
  T any(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(
        random_.between(0, static_cast<std::int64_t>(list.size()) - 1))];
  }

  // Whether every op sees mutated tensors as in the order of ids if `op` runs now.
  bool in_turn(OpId op) const {
    for (OpId other : graph_.ops()) {
      for (TensorId p : graph_.mutates(other)) {
        if (other == op || !touches(op, p)) continue;
        if (other < op && !ran_[other]) return false;
        if (other > op && ran_[other]) return false;
      }
    }
    for (TensorId p : graph_.mutates(op)) {
      for (OpId other : graph_.ops()) {
        if (other < op && touches(other, p) && !ran_[other]) return false;
      }
    }
    return true;
  }
  bool touches(OpId op, TensorId p) const {
    const auto reads = graph_.inputs(op);
    const auto mutates = graph_.mutates(op);
    return std::find(reads.begin(), reads.end(), p) != reads.end() ||
           std::find(mutates.begin(), mutates.end(), p) != mutates.end();
  }

  // Runs `op` in some variant (one that makes `wanted`, if given), bringing what it reads.
  bool run_op(OpId op, TensorId wanted) {
    if (ran_[op] && !graph_.recomputable(op)) return false;
    if (!in_turn(op)) return false;
    std::vector<std::size_t> choices(graph_.variants(op).size());
    for (std::size_t i = 0; i < choices.size(); ++i) choices[i] = i;
    while (!choices.empty()) {
      const auto at = random_.between(0, static_cast<std::int64_t>(choices.size()) - 1);
      const std::size_t choice = choices[static_cast<std::size_t>(at)];
      choices.erase(choices.begin() + at);
      const auto makes = graph_.makes(graph_.variants(op)[choice]);
      const bool fits =
          !wanted.valid() || std::find(makes.begin(), makes.end(), wanted) != makes.end();
      if (fits && run_variant(op, choice)) return true;
    }
    return false;
  }

  bool run_variant(OpId op, std::size_t choice) {
    if (plan_.steps.size() > options_.max_steps) return false;
    const VariantId v = graph_.variants(op)[choice];
    std::vector<TensorId> pinned;
    bool complete = true;
    for (TensorId t : graph_.reads(v)) {
      if (graph_.fixed(t)) continue;
      if (!bring(t)) {
        complete = false;
        break;
      }
      ++tensors_[t].pins;
      pinned.push_back(t);
    }
    for (TensorId t : pinned) --tensors_[t].pins;
    // Bringing the last input may have run the op itself, or an update, on the way.
    if (!complete || !in_turn(op) || (ran_[op] && !graph_.recomputable(op))) return false;
    const TensorId old = graph_.overwrites(v);
    if (old.valid()) {
      const TensorId output = graph_.makes(v)[0];
      if (tensors_[old].pins > 0 || tensors_[output].pins > 0) return false;
      if (tensors_[output].on_device) release(output);
    }
    compute(op, choice);
    shake(v);
    return true;
  }

  bool bring(TensorId t) {
    if (tensors_[t].on_device) return true;
    if (tensors_[t].offloaded && random_.chance(0.7)) return fetch(t), true;
    if (run_op(graph_.producer(t), t)) return true;
    if (tensors_[t].on_device) return true;
    return tensors_[t].offloaded ? (fetch(t), true) : false;
  }

  void run_any_again() {
    std::vector<OpId> ops;
    for (OpId op : graph_.ops()) {
      if (ran_[op] && graph_.recomputable(op)) ops.push_back(op);
    }
    if (!ops.empty()) run_op(any(ops), TensorId::none());
  }

  // After a run: releases and moves here and there. What the run made stays for now.
  void shake(VariantId just_ran) {
    const auto made = graph_.makes(just_ran);
    for (TensorId t : graph_.tensors()) {
      if (graph_.fixed(t)) continue;
      if (options_.moves && random_.chance(drop_ / 3)) offload(t);
      if (options_.moves && random_.chance(drop_ / 8) && tensors_[t].offloaded &&
          !tensors_[t].on_device) {
        fetch(t);
      }
      const bool fresh = std::find(made.begin(), made.end(), t) != made.end();
      if (tensors_[t].on_device && tensors_[t].pins == 0 && !fresh && random_.chance(drop_) &&
          (replaceable(t) || random_.chance(0.1))) {
        release(t);
      }
    }
  }
  bool replaceable(TensorId t) const {
    return tensors_[t].offloaded || graph_.recomputable(graph_.producer(t)) || !needed(t);
  }
  bool needed(TensorId t) const {
    const auto readers = graph_.consumers(t);
    return graph_.kind(t) == TensorKind::kOutput ||
           std::any_of(readers.begin(), readers.end(), [&](OpId op) { return !ran_[op]; });
  }

  void compute(OpId op, std::size_t choice) {
    plan_.steps.push_back(Step::compute(op, choice));
    const VariantId v = graph_.variants(op)[choice];
    for (TensorId t : graph_.reads(v)) tensors_[t].used = true;
    for (TensorId t : graph_.makes(v)) tensors_[t].on_device = true;
    if (graph_.overwrites(v).valid()) tensors_[graph_.overwrites(v)].on_device = false;
    ran_[op] = true;
  }
  void release(TensorId t) {
    plan_.steps.push_back(Step::release(t));
    tensors_[t].on_device = false;
    tensors_[t].used = true;
  }
  void fetch(TensorId t) {
    plan_.steps.push_back(Step::fetch(t));
    tensors_[t].on_device = tensors_[t].fetched = true;
    tensors_[t].used = false;
  }
  void offload(TensorId t) {
    TensorFlags& flags = tensors_[t];
    if (!flags.on_device || (flags.offloaded && !(flags.fetched && flags.used))) return;
    plan_.steps.push_back(Step::offload(t));
    flags.offloaded = true;
    flags.fetched = flags.used = false;
  }

  const Graph& graph_;
  Random& random_;
  const RandomPlanOptions& options_;
  double drop_;
  Plan plan_;
  IdVector<TensorId, TensorFlags> tensors_;
  IdVector<OpId, bool> ran_;
};

// Hands out addresses by trying random low ones and moving up past what is in the way.
class Placer {
 public:
  Placer(const Graph& graph, Random& random) : graph_(graph), random_(random) {}

  Bytes place(Bytes bytes) {
    Bytes begin = random_.between(0, 8);
    for (bool moved = bytes > 0; std::exchange(moved, false);) {
      for (const auto& [t, at] : ranges_) {
        if (begin < at + graph_.bytes(t) && at < begin + bytes && graph_.bytes(t) > 0) {
          begin = at + graph_.bytes(t) + random_.between(0, 1);
          moved = true;
        }
      }
    }
    return begin;
  }
  bool holds(TensorId t) const { return find(t) != ranges_.end(); }
  void keep(TensorId t, Bytes at) { ranges_.emplace_back(t, at); }
  Bytes drop(TensorId t) {
    const auto found = find(t);
    const Bytes at = found->second;
    ranges_.erase(found);
    return at;
  }

 private:
  std::vector<std::pair<TensorId, Bytes>>::const_iterator find(TensorId t) const {
    return std::find_if(ranges_.begin(), ranges_.end(),
                        [&](const auto& range) { return range.first == t; });
  }

  const Graph& graph_;
  Random& random_;
  std::vector<std::pair<TensorId, Bytes>> ranges_;
};

}  // namespace

std::optional<Plan> random_plan(const Graph& graph, Random& random,
                                const RandomPlanOptions& options) {
  constexpr int kAttempts = 12;
  double drop = options.drop;
  for (int i = 0; i < kAttempts; ++i, drop *= 0.7) {
    auto plan = Walk(graph, random, options, drop).run();
    if (!plan) continue;
    plan->planner = "random";
    plan->fingerprint = random.chance(0.5) ? graph.fingerprint() : 0;
    return plan;
  }
  return std::nullopt;
}

void add_addresses(const Graph& graph, Random& random, Plan& plan) {
  Placer placer(graph, random);
  std::vector<Bytes>& addresses = plan.addresses.emplace();
  const auto allocate = [&](TensorId t) {
    addresses.push_back(placer.place(graph.bytes(t)));
    placer.keep(t, addresses.back());
  };
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kFetch) allocate(step.tensor());
    if (step.kind() == StepKind::kRelease) placer.drop(step.tensor());
    if (step.kind() != StepKind::kCompute) continue;
    const VariantId v = step.variant(graph);
    const TensorId old = graph.overwrites(v);
    for (TensorId t : graph.makes(v)) {
      const bool takes_over = old.valid() && t == graph.makes(v)[0];
      if (!takes_over && !placer.holds(t)) allocate(t);
    }
    if (graph.workspace(v) > 0) addresses.push_back(placer.place(graph.workspace(v)));
    if (old.valid()) placer.keep(graph.makes(v)[0], placer.drop(old));
  }
}

}  // namespace regen::testing
