#include "regen/published/lower_sets/lower_set_memory.h"

#include <algorithm>
#include <bit>

#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

constexpr std::uint32_t kNone = LowerSetNodes::kNone;
constexpr std::size_t kMaxKnown = 2'000'000;  // about 200 MB

}  // namespace

LowerSetMemory::LowerSetMemory(const LowerSetBlocks& blocks, const LowerSetFamily& family)
    : blocks_(blocks),
      nodes_(blocks.nodes()),
      graph_(blocks.graph()),
      family_(family),
      tensors_(blocks, family),
      block_(nodes_.size(), 0),
      dropped_(nodes_.size(), 0),
      again_(nodes_.size(), 0),
      used_(graph_.num_tensors(), 0),
      last_use_(graph_.num_tensors(), 0) {
  std::vector<Bytes> read_later(nodes_.size(), 0);
  std::vector<char> droppable(nodes_.size(), 0);
  for (TensorId t : graph_.tensors()) {
    if (tensors_.node(t) != kNone && tensors_.status(t) == LowerSetTensors::kGuaranteed)
      read_later[tensors_.node(t)] += graph_.bytes(t);
  }
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    droppable[node] = blocks_.droppable(node) && read_later[node] > 0;
  }
  bound_.emplace(std::move(read_later), nodes_.costs, droppable);
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
      forward_.push_back(tensors_.node_variant(node));
      block_[node] = round_;
      if (!last && blocks_.droppable(node)) dropped_[node] = round_;
    }
  }
  for (const auto& member : family_.boundary(to)) dropped_[member.node] = 0;
}

// What the ops after the forward pass read of dropped values, and what that takes.
void LowerSetMemory::find_reruns(std::uint32_t from, std::uint32_t to) {
  const auto& below = tensors_.facts(from).pending_words;
  const auto& here = tensors_.facts(to).pending_words;
  rerun_.clear();
  backward_.clear();
  const auto want = [&](VariantId variant) {
    for (TensorId t : graph_.reads(variant)) {
      if (graph_.fixed(t)) continue;
      used_[t] = round_;
      const std::uint32_t node = tensors_.node(t);
      if (node == kNone || !in_block(node) || kept(node) || again_[node] == round_) continue;
      again_[node] = round_;
      rerun_.push_back(node);
    }
  };
  for (std::size_t w = 0; w < here.size(); ++w) {
    for (std::uint64_t left = here[w] & ~below[w]; left != 0; left &= left - 1) {
      const VariantId variant =
          tensors_.rest_variant(64 * w + static_cast<std::size_t>(std::countr_zero(left)));
      backward_.push_back(variant);
      for (TensorId t : graph_.reads(variant)) {
        if (used_[t] != round_ && tensors_.node(t) != kNone && in_block(tensors_.node(t))) {
          result_.floor += graph_.bytes(t);
        }
      }
      want(variant);
    }
  }
  for (std::size_t i = 0; i < rerun_.size(); ++i) want(tensors_.node_variant(rerun_[i]));
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
  const LowerSetTensors::SetFacts& below = tensors_.facts(from);
  const LowerSetTensors::SetFacts& here = tensors_.facts(to);
  const auto large = family_[to];
  Bytes live = 0;
  for (TensorId t : below.crossing) {
    if (!tensors_.is_held(t, mask)) live += graph_.bytes(t);
  }
  const auto needed = [&](TensorId t) {
    const bool own = in_block(tensors_.node(t));
    if (own && tensors_.read_below(t, below.pending)) return true;
    if (used_[t] == round_ && (!own || kept(tensors_.node(t)))) return true;
    return tensors_.crosses(t, large, here.pending);
  };
  const auto counted = [&](TensorId t) {
    return in_block(tensors_.node(t)) || !tensors_.is_held(t, mask);
  };
  run(forward_, live, needed, counted);
}

void LowerSetMemory::run_backward(std::uint32_t from, std::uint32_t to, std::uint64_t mask) {
  const LowerSetTensors::SetFacts& below = tensors_.facts(from);
  Bytes live = tensors_.facts(to).others;
  for (TensorId t : below.crossing) {
    if (!tensors_.is_held(t, mask) && used_[t] == round_) live += graph_.bytes(t);
  }
  for (std::uint32_t node : members_) {
    if (!kept(node)) continue;
    for (TensorId t : graph_.makes(tensors_.node_variant(node))) {
      if (used_[t] == round_ || tensors_.read_below(t, below.pending)) live += graph_.bytes(t);
    }
  }
  std::vector<VariantId> sequence;
  sequence.reserve(rerun_.size() + backward_.size());
  for (std::uint32_t node : rerun_) sequence.push_back(tensors_.node_variant(node));
  sequence.insert(sequence.end(), backward_.begin(), backward_.end());
  const auto needed = [&](TensorId t) { return tensors_.read_below(t, below.pending); };
  const auto counted = [&](TensorId t) {
    return tensors_.node(t) == kNone || in_block(tensors_.node(t)) || !tensors_.is_held(t, mask);
  };
  run(sequence, live, needed, counted);
}

void LowerSetMemory::add_held(std::uint32_t from, std::uint32_t to, std::uint64_t mask) {
  const LowerSetTensors::SetFacts& below = tensors_.facts(from);
  const LowerSetTensors::SetFacts& here = tensors_.facts(to);
  for (TensorId t : below.crossing) {
    if (!tensors_.is_held(t, mask) && used_[t] == round_) result_.held += graph_.bytes(t);
  }
  for (std::uint32_t node : members_) {
    if (!kept(node)) continue;
    for (TensorId t : graph_.makes(tensors_.node_variant(node))) {
      const bool forced = tensors_.status(t) == LowerSetTensors::kForced &&
                          tensors_.crosses(t, family_[to], here.pending);
      if (used_[t] == round_ || forced || tensors_.read_below(t, below.pending)) {
        result_.held += graph_.bytes(t);
      }
    }
  }
  for (TensorId t : here.crossing) {
    if (tensors_.status(t) >= LowerSetTensors::kMaxBits) continue;
    const std::uint64_t bit = std::uint64_t{1} << tensors_.status(t);
    const bool below_own = in_block(tensors_.node(t)) && tensors_.read_below(t, below.pending);
    if ((mask & bit) != 0 || used_[t] == round_ || below_own) result_.mask |= bit;
  }
}

// Stops as soon as the block is known to be too expensive or too large: most are.
void LowerSetMemory::fill(std::uint32_t from, std::uint32_t to, std::uint64_t mask,
                          const BlockLimits& limits) {
  ++round_;
  result_ = {};
  result_.whole = false;
  peak_limit_ = limits.peak;
  tensors_.facts(from);
  tensors_.facts(to);
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

}  // namespace regen::published
