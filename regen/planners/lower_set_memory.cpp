#include "regen/planners/lower_set_memory.h"

#include <algorithm>
#include <bit>

#include "regen/planners/recompute.h"

namespace regen {
namespace {

constexpr std::uint32_t kNone = LowerSetNodes::kNone;
constexpr std::size_t kMaxBits = 64;
constexpr std::size_t kMaxKnown = 2'000'000;  // about 200 MB

// The variant that plan_from_sequence() will choose for an op after the forward pass: in place of
// a value that only this op reads.
VariantId rest_variant(const Graph& graph, OpId op) {
  const VariantId base = base_variant(graph, op);
  for (VariantId v : graph.variants(op)) {
    const TensorId old = graph.overwrites(v);
    if (!old.valid() || graph.consumers(old).size() != 1 ||
        graph.kind(old) == TensorKind::kOutput ||
        graph.phase(graph.producer(old)) == Phase::kForward) {
      continue;
    }
    if (can_replace(graph, v, base)) return v;
  }
  return base;
}

}  // namespace

LowerSetMemory::LowerSetMemory(const LowerSetBlocks& blocks, const LowerSetFamily& family)
    : blocks_(blocks),
      nodes_(blocks.nodes()),
      graph_(blocks.graph()),
      family_(family),
      node_(graph_.num_tensors(), kNone),
      status_(graph_.num_tensors(), kNeverYet),
      facts_(family.size()),
      block_(nodes_.size(), 0),
      dropped_(nodes_.size(), 0),
      again_(nodes_.size(), 0),
      used_(graph_.num_tensors(), 0),
      last_use_(graph_.num_tensors(), 0) {
  std::vector<std::pair<TensorId, std::uint32_t>> by_nodes;
  std::vector<std::pair<TensorId, std::uint32_t>> by_rest;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    node_variants_.push_back(base_variant(graph_, nodes_.ops[node]));
    for (TensorId t : graph_.makes(node_variants_.back())) node_[t] = node;
    for (TensorId t : graph_.reads(node_variants_.back())) by_nodes.emplace_back(t, node);
  }
  for (std::uint32_t i = 0; i < blocks.rest().size(); ++i) {
    rest_variants_.push_back(rest_variant(graph_, blocks.rest()[i]));
    for (TensorId t : graph_.reads(rest_variants_.back())) by_rest.emplace_back(t, i);
  }
  node_readers_ = Csr<TensorId, std::uint32_t>::from_pairs(graph_.num_tensors(), by_nodes);
  rest_readers_ = Csr<TensorId, std::uint32_t>::from_pairs(graph_.num_tensors(), by_rest);
  classify();
  std::vector<Bytes> read_later(nodes_.size(), 0);
  std::vector<char> droppable(nodes_.size(), 0);
  for (TensorId t : graph_.tensors()) {
    if (node_[t] != kNone && status_[t] == kCertain) read_later[node_[t]] += graph_.bytes(t);
  }
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    droppable[node] = blocks_.droppable(node) && read_later[node] > 0;
  }
  bound_.emplace(std::move(read_later), nodes_.costs, droppable);
  for (OpId op : graph_.ops()) {
    // plan_from_sequence() may run it in place, in some chains: better than what is counted here.
    const std::uint32_t node = nodes_.place[op];
    if (node == kNone) continue;
    for (VariantId v : graph_.variants(op)) {
      if (graph_.overwrites(v).valid() && can_replace(graph_, v, node_variants_[node])) {
        exact_ = false;
      }
    }
  }
}

void LowerSetMemory::classify() {
  std::size_t bits = 0;
  for (TensorId t : graph_.tensors()) {
    if (node_[t] == kNone) continue;
    const auto with_maker = [&](std::uint32_t rest) { return blocks_.runs_with(rest, node_[t]); };
    if (graph_.kind(t) == TensorKind::kOutput ||
        std::ranges::any_of(rest_readers_[t], with_maker)) {
      status_[t] = kCertain;
    } else if (node_readers_[t].size() + rest_readers_[t].size() <= 1) {
      status_[t] = kNeverYet;
    } else if (bits < kMaxBits) {
      status_[t] = static_cast<std::uint8_t>(bits++);
    } else {
      status_[t] = kForced;
      exact_ = false;
    }
  }
}

bool LowerSetMemory::crosses(TensorId t, std::span<const std::uint64_t> set,
                             const RestBits& pending) const {
  return std::ranges::any_of(node_readers_[t],
                             [&](std::uint32_t node) { return !has_node(set, node); }) ||
         std::ranges::any_of(rest_readers_[t],
                             [&](std::uint32_t rest) { return pending[rest] == 0; });
}

bool LowerSetMemory::read_below(TensorId t, const RestBits& pending) const {
  return graph_.kind(t) == TensorKind::kOutput ||
         std::ranges::any_of(rest_readers_[t],
                             [&](std::uint32_t rest) { return pending[rest] != 0; });
}

bool LowerSetMemory::is_held(TensorId t, std::uint64_t mask) const {
  const std::uint8_t status = status_[t];
  return status == kCertain || status == kForced ||
         (status < kMaxBits && (mask >> status & 1) != 0);
}

const LowerSetMemory::SetFacts& LowerSetMemory::facts(std::uint32_t set) {
  if (facts_[set]) return *facts_[set];
  SetFacts facts;
  const auto members = family_[set];
  const bool whole = set + 1 == family_.size();
  facts.pending = whole ? RestBits(blocks_.rest().size(), 1) : blocks_.pending(members);
  facts.pending_words.assign((rest_variants_.size() + 63) / 64, 0);
  for (std::uint32_t i = 0; i < rest_variants_.size(); ++i) {
    if (facts.pending[i]) {
      facts.pending_words[i / 64] |= std::uint64_t{1} << (i % 64);
      continue;
    }
    for (TensorId t : graph_.makes(rest_variants_[i])) {
      if (read_below(t, facts.pending)) facts.others += graph_.bytes(t);
    }
  }
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    for (TensorId t : graph_.makes(node_variants_[node])) {
      if (!has_node(members, node)) {
        if (read_below(t, facts.pending)) facts.others += graph_.bytes(t);
      } else if (status_[t] != kCertain && crosses(t, members, facts.pending)) {
        facts.crossing.push_back(t);
      }
    }
  }
  facts_[set] = std::move(facts);
  return *facts_[set];
}

void LowerSetMemory::collect(std::uint32_t from, std::uint32_t to) {
  const auto small = family_[from];
  const auto large = family_[to];
  const bool last = to + 1 == family_.size();
  members_.clear();
  forward_.clear();
  for (std::size_t w = 0; w < large.size(); ++w) {
    for (std::uint64_t left = large[w] & ~small[w]; left != 0; left &= left - 1) {
      const auto node =
          static_cast<std::uint32_t>(64 * w) + static_cast<std::uint32_t>(std::countr_zero(left));
      members_.push_back(node);
      forward_.push_back(node_variants_[node]);
      block_[node] = round_;
      if (!last && blocks_.droppable(node)) dropped_[node] = round_;
    }
  }
  for (const auto& member : family_.boundary(to)) dropped_[member.node] = 0;
}

// What the ops after the forward pass read of dropped values, and what that takes.
void LowerSetMemory::find_reruns(std::uint32_t from, std::uint32_t to) {
  const auto& below = facts(from).pending_words;
  const auto& here = facts(to).pending_words;
  rerun_.clear();
  backward_.clear();
  const auto want = [&](VariantId variant) {
    for (TensorId t : graph_.reads(variant)) {
      if (graph_.fixed(t)) continue;
      used_[t] = round_;
      const std::uint32_t node = node_[t];
      if (node == kNone || !in_block(node) || kept(node) || again_[node] == round_) continue;
      again_[node] = round_;
      rerun_.push_back(node);
    }
  };
  for (std::size_t w = 0; w < here.size(); ++w) {
    for (std::uint64_t left = here[w] & ~below[w]; left != 0; left &= left - 1) {
      const VariantId variant =
          rest_variants_[64 * w + static_cast<std::size_t>(std::countr_zero(left))];
      backward_.push_back(variant);
      for (TensorId t : graph_.reads(variant)) {
        if (used_[t] != round_ && node_[t] != kNone && in_block(node_[t])) {
          result_.floor += graph_.bytes(t);
        }
      }
      want(variant);
    }
  }
  for (std::size_t i = 0; i < rerun_.size(); ++i) want(node_variants_[rerun_[i]]);
  std::ranges::sort(rerun_);
  for (std::uint32_t node : rerun_) result_.cost += nodes_.costs[node];
}

// Walks a sequence. `needed(t)`: does t stay when the sequence is over? `counted(t)`: do its
// bytes belong to this block's, so that they go when it is released?
template <class Needed, class Counted>
void LowerSetMemory::run(const std::vector<VariantId>& sequence, Bytes live, Needed needed,
                         Counted counted) {
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    for (TensorId t : graph_.makes(sequence[i])) last_use_[t] = static_cast<std::uint32_t>(i);
    for (TensorId t : graph_.reads(sequence[i])) last_use_[t] = static_cast<std::uint32_t>(i);
  }
  result_.peak = std::max(result_.peak, live);
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    const VariantId variant = sequence[i];
    const TensorId old = graph_.overwrites(variant);
    Bytes fresh = graph_.workspace(variant);
    Bytes made = 0;
    for (TensorId t : graph_.makes(variant)) made += graph_.bytes(t);
    fresh += made;
    if (old.valid()) fresh -= graph_.bytes(graph_.makes(variant)[0]);
    result_.peak = std::max(result_.peak, live + fresh);
    if (result_.peak > peak_limit_) return;
    live += made;
    const auto end = [&](TensorId t) {
      const bool over = t == old || (last_use_[t] == i && !needed(t));
      if (over && counted(t)) live -= graph_.bytes(t);
    };
    for (TensorId t : graph_.makes(variant)) end(t);
    for (TensorId t : graph_.reads(variant)) {
      if (!graph_.fixed(t)) end(t);
    }
  }
}

void LowerSetMemory::run_forward(std::uint32_t from, std::uint32_t to, std::uint64_t mask) {
  const SetFacts& below = facts(from);
  const SetFacts& here = facts(to);
  const auto large = family_[to];
  Bytes live = 0;
  for (TensorId t : below.crossing) {
    if (!is_held(t, mask)) live += graph_.bytes(t);
  }
  const auto needed = [&](TensorId t) {
    const bool own = in_block(node_[t]);
    if (own && read_below(t, below.pending)) return true;
    if (used_[t] == round_ && (!own || kept(node_[t]))) return true;
    return crosses(t, large, here.pending);
  };
  const auto counted = [&](TensorId t) { return in_block(node_[t]) || !is_held(t, mask); };
  run(forward_, live, needed, counted);
}

void LowerSetMemory::run_backward(std::uint32_t from, std::uint32_t to, std::uint64_t mask) {
  const SetFacts& below = facts(from);
  Bytes live = facts(to).others;
  for (TensorId t : below.crossing) {
    if (!is_held(t, mask) && used_[t] == round_) live += graph_.bytes(t);
  }
  for (std::uint32_t node : members_) {
    if (!kept(node)) continue;
    for (TensorId t : graph_.makes(node_variants_[node])) {
      if (used_[t] == round_ || read_below(t, below.pending)) live += graph_.bytes(t);
    }
  }
  std::vector<VariantId> sequence;
  sequence.reserve(rerun_.size() + backward_.size());
  for (std::uint32_t node : rerun_) sequence.push_back(node_variants_[node]);
  sequence.insert(sequence.end(), backward_.begin(), backward_.end());
  const auto needed = [&](TensorId t) { return read_below(t, below.pending); };
  const auto counted = [&](TensorId t) {
    return node_[t] == kNone || in_block(node_[t]) || !is_held(t, mask);
  };
  run(sequence, live, needed, counted);
}

void LowerSetMemory::add_held(std::uint32_t from, std::uint32_t to, std::uint64_t mask) {
  const SetFacts& below = facts(from);
  const SetFacts& here = facts(to);
  for (TensorId t : below.crossing) {
    if (!is_held(t, mask) && used_[t] == round_) result_.held += graph_.bytes(t);
  }
  for (std::uint32_t node : members_) {
    if (!kept(node)) continue;
    for (TensorId t : graph_.makes(node_variants_[node])) {
      const bool forced = status_[t] == kForced && crosses(t, family_[to], here.pending);
      if (used_[t] == round_ || forced || read_below(t, below.pending)) {
        result_.held += graph_.bytes(t);
      }
    }
  }
  for (TensorId t : here.crossing) {
    if (status_[t] >= kMaxBits) continue;
    const std::uint64_t bit = std::uint64_t{1} << status_[t];
    const bool below_own = in_block(node_[t]) && read_below(t, below.pending);
    if ((mask & bit) != 0 || used_[t] == round_ || below_own) result_.mask |= bit;
  }
}

// Stops as soon as the block is known to be too dear or too large: most are.
void LowerSetMemory::fill(std::uint32_t from, std::uint32_t to, std::uint64_t mask,
                          const BlockLimits& limits) {
  ++round_;
  result_ = {};
  result_.whole = false;
  peak_limit_ = limits.peak;
  facts(from);
  facts(to);
  collect(from, to);
  find_reruns(from, to);
  if (result_.cost >= limits.cost || result_.floor > limits.peak) return;
  run_backward(from, to, mask);
  if (result_.peak > limits.peak) return;
  run_forward(from, to, mask);
  if (result_.peak > limits.peak) return;
  add_held(from, to, mask);
  result_.whole = true;
}

const BlockFacts& LowerSetMemory::evaluate(std::uint32_t from, std::uint32_t to, std::uint64_t mask,
                                           const BlockLimits& limits) {
  const Key key{(std::uint64_t{from} << 32) | to, mask};
  const auto found = known_.find(key);
  if (found != known_.end()) {
    const BlockFacts& facts = found->second;
    const bool refused =
        facts.cost >= limits.cost || facts.floor > limits.peak || facts.peak > limits.peak;
    if (facts.whole || refused) return facts;
  }
  fill(from, to, mask, limits);
  if (found != known_.end()) return found->second = result_;
  if (known_.size() >= kMaxKnown) return result_;
  return known_.emplace(key, result_).first->second;
}

}  // namespace regen
