#include "regen/published/lower_sets/lower_set_tensors.h"

#include <algorithm>

#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

constexpr std::uint32_t kNone = LowerSetNodes::kNone;

// The variant that plan_from_sequence() will choose for an op after the forward pass: in place of
// a value that only this op reads.
VariantId variant_after_forward(const Graph& graph, OpId op) {
  const VariantId base = search::base_variant(graph, op);
  for (VariantId v : graph.variants(op)) {
    const TensorId old = graph.overwrites(v);
    if (!old.valid() || graph.consumers(old).size() != 1 ||
        graph.kind(old) == TensorKind::kOutput ||
        graph.phase(graph.producer(old)) == Phase::kForward) {
      continue;
    }
    if (search::can_replace(graph, v, base)) return v;
  }
  return base;
}

}  // namespace

LowerSetTensors::LowerSetTensors(const LowerSetBlocks& blocks, const LowerSetFamily& family)
    : blocks_(blocks),
      nodes_(blocks.nodes()),
      graph_(blocks.graph()),
      family_(family),
      node_(graph_.num_tensors(), kNone),
      status_(graph_.num_tensors(), kNeverYet),
      facts_(family.size()) {
  std::vector<std::pair<TensorId, std::uint32_t>> by_nodes;
  std::vector<std::pair<TensorId, std::uint32_t>> by_rest;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    node_variants_.push_back(search::base_variant(graph_, nodes_.ops[node]));
    for (TensorId t : graph_.makes(node_variants_.back())) node_[t] = node;
    for (TensorId t : graph_.reads(node_variants_.back())) by_nodes.emplace_back(t, node);
  }
  for (std::uint32_t i = 0; i < blocks.rest().size(); ++i) {
    rest_variants_.push_back(variant_after_forward(graph_, blocks.rest()[i]));
    for (TensorId t : graph_.reads(rest_variants_.back())) by_rest.emplace_back(t, i);
  }
  node_readers_ = Csr<TensorId, std::uint32_t>::from_pairs(graph_.num_tensors(), by_nodes);
  rest_readers_ = Csr<TensorId, std::uint32_t>::from_pairs(graph_.num_tensors(), by_rest);
  classify();
  for (OpId op : graph_.ops()) {
    // plan_from_sequence() may run it in place, in some chains: better than what is counted here.
    const std::uint32_t node = nodes_.place[op];
    if (node == kNone) continue;
    for (VariantId v : graph_.variants(op)) {
      if (graph_.overwrites(v).valid() && search::can_replace(graph_, v, node_variants_[node])) {
        exact_ = false;
      }
    }
  }
}

void LowerSetTensors::classify() {
  std::size_t bits = 0;
  for (TensorId t : graph_.tensors()) {
    if (node_[t] == kNone) continue;
    const auto with_maker = [&](std::uint32_t rest) { return blocks_.runs_with(rest, node_[t]); };
    if (graph_.kind(t) == TensorKind::kOutput ||
        std::ranges::any_of(rest_readers_[t], with_maker)) {
      status_[t] = kGuaranteed;
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

bool LowerSetTensors::crosses(TensorId t, std::span<const std::uint64_t> set,
                              const RestBits& pending) const {
  return std::ranges::any_of(node_readers_[t],
                             [&](std::uint32_t node) { return !has_node(set, node); }) ||
         std::ranges::any_of(rest_readers_[t],
                             [&](std::uint32_t rest) { return pending[rest] == 0; });
}

bool LowerSetTensors::read_below(TensorId t, const RestBits& pending) const {
  return graph_.kind(t) == TensorKind::kOutput ||
         std::ranges::any_of(rest_readers_[t],
                             [&](std::uint32_t rest) { return pending[rest] != 0; });
}

bool LowerSetTensors::is_held(TensorId t, std::uint64_t mask) const {
  const std::uint8_t status = status_[t];
  return status == kGuaranteed || status == kForced ||
         (status < kMaxBits && (mask >> status & 1) != 0);
}

const LowerSetTensors::SetFacts& LowerSetTensors::facts(std::uint32_t set) {
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
      } else if (status_[t] != kGuaranteed && crosses(t, members, facts.pending)) {
        facts.crossing.push_back(t);
      }
    }
  }
  facts_[set] = std::move(facts);
  return *facts_[set];
}

}  // namespace regen::published
