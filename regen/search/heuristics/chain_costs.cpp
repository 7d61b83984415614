#include "regen/search/heuristics/chain_costs.h"

#include <algorithm>

#include "regen/search/build/sequence.h"

namespace regen::search {
namespace {

constexpr std::array<Pending, 3> kAllPending{kBoth, kLate, kLateWithValue};

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
    costs.has_early = !block(b).early.empty();
    costs.saves_value = std::ranges::count(block(b).saved, value(b)) > 0;
    costs.late_reads_value = std::ranges::count(block(b).saved_late, value(b)) > 0;
    for (const Pending pending : kAllPending) {
      costs.needs_input[pending] = costs.reads_input || reads(block(b).last[pending], in);
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
    if (!costs.saves_value) all.push_back(value(b));
    for (const bool first : {false, true}) {
      for (const ChainInput mode : {kGoes, kStays, kOthers}) {
        costs.pass[first][mode] =
            forward(b, first ? block.ops : block.pass, {value(b)}, mode, first);
      }
      const auto& ops = first ? block.ops : block.save;
      costs.save[first] = {forward(b, ops, all, own, first), forward(b, ops, all, kOthers, first)};
    }
    for (const Pending pending : kAllPending) {
      const auto& ops = last(b) ? block.ops : block.last[pending];
      const auto& saved = pending == kBoth ? block.saved : block.saved_late;
      const TensorId there = pending == kLateWithValue ? value(b) : TensorId::none();
      for (const bool others : {false, true}) {
        costs.last[pending][others] =
            forward(b, ops, saved, others ? kOthers : own, last(b), there);
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

  // From the end to the front, because what a part must leave is what later ones read.
  void fill_reversals() {
    std::vector<TensorId> needed;  // by what follows, made behind the forward pass
    for (TensorId t : graph_.tensors()) {
      if (graph_.kind(t) == TensorKind::kOutput && made_behind(t)) needed.push_back(t);
    }
    for (std::size_t b = 0; b < costs_.size(); ++b) {
      BlockCosts& costs = costs_[b];
      std::vector<OpId> both = block(b).early;
      both.insert(both.end(), block(b).late.begin(), block(b).late.end());
      std::vector<TensorId> before_late;
      std::vector<TensorId> before_both;
      for (const bool others : {true, false}) {
        const TensorId stays = others ? input(b) : TensorId::none();
        const RunCost late =
            part(b, block(b).late, block(b).saved_late, stays, needed, before_late);
        costs.reversal[kLate][others] = costs.reversal[kLateWithValue][others] = late;
        costs.reversal[kBoth][others] = part(b, both, block(b).saved, stays, needed, before_both);
      }
      costs.base[kBoth] = lasting_bytes(b) + sum_bytes(before_both);
      costs.base[kLate] = costs.base[kLateWithValue] = lasting_bytes(b) + sum_bytes(before_late);
      for (const bool stays : {false, true}) {
        costs.early[stays] = early(b, stays, before_late);
      }
      needed = before_both;
    }
  }

  Bytes sum_bytes(const std::vector<TensorId>& tensors) const {
    Bytes bytes = 0;
    for (TensorId t : tensors) bytes += graph_.bytes(t);
    return bytes;
  }

  // What the ops take when `saved` and, if they read it, the input are there before, and `after`
  // and `stays` have to be there at the end. If `stays` is the input, others count it. `before`
  // becomes what they need of the values made behind the forward pass.
  RunCost part(std::size_t b, const std::vector<OpId>& ops, const std::vector<TensorId>& saved,
               TensorId stays, const std::vector<TensorId>& after, std::vector<TensorId>& before) {
    std::vector<TensorId> wanted = after;
    wanted.insert(wanted.end(), lasting_.begin(), lasting_.end());
    if (stays.valid()) wanted.push_back(stays);
    const auto steps = steps_of_part(graph_, ops, wanted);
    before = needed_before(steps, after);
    for (TensorId t : lasting_) walk_.ignore(t);
    for (TensorId t : before) walk_.put(t);
    for (TensorId t : saved) walk_.put(t);
    if (input(b).valid() && reads(ops, input(b))) {
      stays == input(b) ? walk_.ignore(input(b)) : walk_.put(input(b));
    }
    RunCost run = walk_.walk(steps, /*first=*/true);
    run.peak += lasting_bytes(b);
    return run;
  }

  RunCost early(std::size_t b, bool value_stays, const std::vector<TensorId>& after) {
    const TensorId own = value(b);
    std::vector<TensorId> there;
    if (own.valid()) there.push_back(own);
    std::vector<TensorId> before;
    return part(b, block(b).early, there, value_stays ? own : TensorId::none(), after, before);
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
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
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

}  // namespace regen::search
