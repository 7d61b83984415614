#include "regen/planners/chain_costs.h"

#include <algorithm>

#include "regen/planners/recompute.h"

namespace regen {
namespace {

// Goes through the steps of one run.
class RunWalk {
 public:
  explicit RunWalk(const Graph& graph) : graph_(graph), place_(graph.num_tensors(), kAbsent) {}

  void put(TensorId t) { place(t, kCounted), live_ += graph_.bytes(t); }
  void ignore(TensorId t) { place(t, kIgnored); }

  RunCost walk(std::span<const Step> steps, bool first) {
    RunCost result{.peak = live_};
    for (const Step& step : steps) {
      if (step.kind() == StepKind::kRelease) {
        take(step.tensor());
        continue;
      }
      const VariantId v = step.variant(graph_);
      result.cost += first ? graph_.cost(v) : graph_.rerun_cost(v);
      result.peak = std::max(result.peak, compute(v));
    }
    clear();
    return result;
  }

 private:
  enum Place : char { kAbsent, kCounted, kIgnored };

  void place(TensorId t, Place where) {
    place_[t] = where;
    touched_.push_back(t);
  }
  void take(TensorId t) {
    if (place_[t] != kCounted) return;
    live_ -= graph_.bytes(t);
    place_[t] = kAbsent;
  }
  void clear() {
    for (TensorId t : touched_) place_[t] = kAbsent;
    touched_.clear();
    live_ = 0;
  }
  // The bytes during the step.
  Bytes compute(VariantId v) {
    const TensorId old = graph_.overwrites(v);
    Bytes made = 0;
    for (TensorId t : graph_.makes(v)) {
      const bool in_place = old.valid() && t == graph_.makes(v)[0];
      if (place_[t] == kAbsent && !in_place) made += graph_.bytes(t);
    }
    const Bytes during = live_ + made + graph_.workspace(v);
    if (old.valid()) take(old);
    for (TensorId t : graph_.makes(v)) {
      if (place_[t] == kAbsent) put(t);
    }
    return during;
  }

  const Graph& graph_;
  IdVector<TensorId, char> place_;
  std::vector<TensorId> touched_;
  Bytes live_ = 0;
};

class CostMaker {
 public:
  CostMaker(const Graph& graph, const ChainBlocks& chain)
      : graph_(graph), chain_(chain), costs_(chain.blocks.size()), walk_(graph) {
    for (TensorId t : graph.tensors()) {
      if (chain.lasting[t]) lasting_.push_back(t);
    }
  }

  std::vector<BlockCosts> make() {
    Bytes lasting_before = 0;
    for (std::size_t b = 0; b < costs_.size(); ++b) {
      fill_bytes(b);
      costs_[b].first_base = lasting_before;
      for (OpId op : block(b).ops) {
        for (TensorId t : graph_.makes(base_variant(graph_, op))) {
          if (chain_.lasting[t]) lasting_before += graph_.bytes(t);
        }
      }
      fill_forward(b);
    }
    fill_reversals();
    return std::move(costs_);
  }

 private:
  const ChainBlock& block(std::size_t b) const { return chain_.blocks[b]; }
  bool last(std::size_t b) const { return b + 1 == chain_.blocks.size(); }
  // The input if it can be dropped at all.
  TensorId input(std::size_t b) const {
    const TensorId t = b == 0 ? TensorId::none() : block(b - 1).value;
    return t.valid() && !chain_.lasting[t] ? t : TensorId::none();
  }
  TensorId value(std::size_t b) const { return last(b) ? TensorId::none() : input(b + 1); }

  void fill_bytes(std::size_t b) {
    BlockCosts& costs = costs_[b];
    const TensorId in = input(b);
    costs.input_bytes = in.valid() ? graph_.bytes(in) : 0;
    costs.value_bytes = value(b).valid() ? graph_.bytes(value(b)) : 0;
    for (TensorId t : block(b).saved) costs.saved_bytes += graph_.bytes(t);
    costs.reads_input = block(b).reads_input;
    costs.reads_value = block(b).reads_value;
    for (std::size_t there = 0; there < 2; ++there) {
      costs.needs_input[there] = costs.reads_input || reads(block(b).last[there], in);
    }
  }

  bool reads(const std::vector<OpId>& ops, TensorId t) const {
    return t.valid() && std::ranges::any_of(ops, [&](OpId op) {
             return std::ranges::count(graph_.reads(base_variant(graph_, op)), t) > 0;
           });
  }

  // One forward run of block b, after which `wanted` is there.
  RunCost forward(std::size_t b, const std::vector<OpId>& ops, std::vector<TensorId> wanted,
                  ChainInput input_mode, bool first, TensorId there = TensorId::none()) {
    const TensorId in = input(b);
    if (in.valid() && (input_mode != kGoes || reads(ops, in))) walk_.put(in);
    if (in.valid() && input_mode != kGoes) wanted.push_back(in);
    if (there.valid()) walk_.ignore(there);
    for (TensorId t : lasting_) {
      wanted.push_back(t);
      const bool made_now = first && graph_.producer(t) >= block(b).ops.front() &&
                            graph_.producer(t) <= block(b).ops.back();
      if (!made_now) walk_.ignore(t);
    }
    std::erase_if(wanted, [](TensorId t) { return !t.valid(); });
    RunCost run = walk_.walk(steps_of_part(graph_, ops, wanted), first);
    if (in.valid() && input_mode == kOthers) run.peak -= graph_.bytes(in);
    return run;
  }

  void fill_forward(std::size_t b) {
    const ChainBlock& block = this->block(b);
    BlockCosts& costs = costs_[b];
    const ChainInput own = costs.reads_input ? kStays : kGoes;
    std::vector<TensorId> all = block.saved;
    if (!costs.reads_value) all.push_back(value(b));
    for (const bool first : {false, true}) {
      for (const ChainInput mode : {kGoes, kStays, kOthers}) {
        costs.pass[first][mode] =
            forward(b, first ? block.ops : block.pass, {value(b)}, mode, first);
      }
      const auto& ops = first ? block.ops : block.save;
      costs.save[first] = {forward(b, ops, all, own, first), forward(b, ops, all, kOthers, first)};
    }
    for (const bool there : {false, true}) {
      const auto& ops = last(b) ? block.ops : block.last[there];
      const TensorId kept = there ? value(b) : TensorId::none();
      for (const bool others : {false, true}) {
        costs.last[there][others] =
            forward(b, ops, block.saved, others ? kOthers : own, last(b), kept);
      }
    }
  }

  // The lasting values that are still there when the reversals from block b down are to come.
  Bytes lasting_bytes(std::size_t b) const {
    Bytes bytes = 0;
    for (TensorId t : lasting_) {
      if (chain_.lasts_until[t] <= static_cast<std::int64_t>(b)) bytes += graph_.bytes(t);
    }
    return bytes;
  }

  // From the end to the front, because what a reversal must leave is what later ones read.
  void fill_reversals() {
    std::vector<TensorId> needed;  // by what follows, made behind the forward pass
    for (TensorId t : graph_.tensors()) {
      if (graph_.kind(t) == TensorKind::kOutput && made_behind(t)) needed.push_back(t);
    }
    for (std::size_t b = 0; b < costs_.size(); ++b) {
      const std::vector<TensorId> after = needed;
      for (const bool others : {true, false}) {
        std::vector<TensorId> wanted = after;
        wanted.insert(wanted.end(), lasting_.begin(), lasting_.end());
        if (others && input(b).valid()) wanted.push_back(input(b));
        const auto steps = steps_of_part(graph_, block(b).reversal, wanted);
        needed = needed_before(steps, after);
        costs_[b].reversal[others] = reversal(b, steps, needed, others);
      }
      costs_[b].base = lasting_bytes(b);
      for (TensorId t : needed) costs_[b].base += graph_.bytes(t);
    }
  }

  RunCost reversal(std::size_t b, std::span<const Step> steps, const std::vector<TensorId>& there,
                   bool others) {
    for (TensorId t : lasting_) walk_.ignore(t);
    for (TensorId t : there) walk_.put(t);
    for (TensorId t : block(b).saved) walk_.put(t);
    if (block(b).reads_input && input(b).valid()) {
      others ? walk_.ignore(input(b)) : walk_.put(input(b));
    }
    RunCost run = walk_.walk(steps, /*first=*/true);
    run.peak += lasting_bytes(b);
    return run;
  }

  bool made_behind(TensorId t) const {
    const OpId maker = graph_.producer(t);
    return maker.valid() && maker.index() >= chain_.num_forward;
  }

  // What must be there before the steps, of the values made behind the forward pass.
  std::vector<TensorId> needed_before(std::span<const Step> steps,
                                      const std::vector<TensorId>& after) const {
    std::vector<TensorId> made;
    std::vector<TensorId> needed = after;
    for (const Step& step : steps) {
      if (step.kind() != StepKind::kCompute) continue;
      const VariantId v = step.variant(graph_);
      for (TensorId t : graph_.reads(v)) {
        if (made_behind(t)) needed.push_back(t);
      }
      made.insert(made.end(), graph_.makes(v).begin(), graph_.makes(v).end());
    }
    // Each of these ops runs once, so that what is made here was not there before.
    std::ranges::sort(made);
    std::erase_if(needed, [&](TensorId t) { return std::ranges::binary_search(made, t); });
    std::ranges::sort(needed);
    const auto repeated = std::ranges::unique(needed);
    needed.erase(repeated.begin(), repeated.end());
    return needed;
  }

  const Graph& graph_;
  const ChainBlocks& chain_;
  std::vector<BlockCosts> costs_;
  std::vector<TensorId> lasting_;
  RunWalk walk_;
};

}  // namespace

std::vector<BlockCosts> chain_costs(const Graph& graph, const ChainBlocks& chain) {
  return CostMaker(graph, chain).make();
}

}  // namespace regen
