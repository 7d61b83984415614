#include "regen/published/lower_sets/lower_set_blocks.h"

#include <algorithm>
#include <bit>

#include "regen/graph/analysis.h"
#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

bool is_subset(std::span<const std::uint64_t> small, std::span<const std::uint64_t> large) {
  for (std::size_t i = 0; i < small.size(); ++i) {
    if ((small[i] & ~large[i]) != 0) return false;
  }
  return true;
}

std::uint32_t maker_node(const Graph& graph, const LowerSetNodes& nodes, TensorId t) {
  const OpId maker = graph.producer(t);
  return maker.valid() ? nodes.place[maker] : LowerSetNodes::kNone;
}

}  // namespace

LowerSetBlocks::LowerSetBlocks(const Graph& graph, const LowerSetNodes& nodes)
    : graph_(graph), nodes_(nodes) {
  for (OpId op : graph.ops()) {
    if (nodes.place[op] == LowerSetNodes::kNone) rest_.push_back(op);
  }
  find_wanted();
  find_droppable();
}

// An op must not run later than those that wait for it, so it looks through them: it runs as soon
// as the backward pass reaches the last block of all that they read.
void LowerSetBlocks::find_wanted() {
  const OpGraph order = ordering_graph(graph_);
  IdVector<OpId, std::uint32_t> place(graph_.num_ops(), LowerSetNodes::kNone);
  for (std::uint32_t i = 0; i < rest_.size(); ++i) place[rest_[i]] = i;
  before_.resize(rest_.size());
  wanted_.assign(rest_.size(), SetWords(nodes_.words(), 0));
  free_.assign(rest_.size(), 0);
  barrier_.assign(rest_.size(), 0);
  behind_.assign(rest_.size(), 0);
  for (std::size_t i = 0; i < rest_.size(); ++i) {
    for (OpId op : order.predecessors[rest_[i]]) {
      if (place[op] == LowerSetNodes::kNone) continue;
      before_[i].push_back(place[op]);
      if (behind_[place[op]]) behind_[i] = 1;
    }
    barrier_[i] = !graph_.mutates(rest_[i]).empty();
    if (barrier_[i]) behind_[i] = 1;
  }
  for (std::size_t i = rest_.size(); i-- > 0;) {
    for (TensorId t : graph_.reads(search::base_variant(graph_, rest_[i]))) {
      const std::uint32_t node = maker_node(graph_, nodes_, t);
      if (node != LowerSetNodes::kNone) wanted_[i][node / 64] |= std::uint64_t{1} << (node % 64);
    }
    for (std::uint32_t b : before_[i]) {
      for (std::size_t w = 0; w < nodes_.words(); ++w) wanted_[b][w] |= wanted_[i][w];
    }
    const auto none = [](std::uint64_t word) { return word == 0; };
    free_[i] = std::ranges::all_of(wanted_[i], none) || shrinks(i);
  }
}

// Whether running an op as early as possible gives memory back: it reads only what others after the
// forward pass made, no other op reads that, and it makes no more. The sum of two gradients does.
bool LowerSetBlocks::shrinks(std::size_t rest) const {
  const VariantId variant = search::base_variant(graph_, rest_[rest]);
  Bytes freed = 0;
  for (TensorId t : graph_.reads(variant)) {
    if (graph_.fixed(t)) continue;
    if (maker_node(graph_, nodes_, t) != LowerSetNodes::kNone) return false;
    if (graph_.consumers(t).size() == 1) freed += graph_.bytes(t);
  }
  Bytes made = 0;
  for (TensorId t : graph_.makes(variant)) made += graph_.bytes(t);
  return !before_[rest].empty() && made <= freed;
}

RestBits LowerSetBlocks::pending(std::span<const std::uint64_t> set) const {
  RestBits bits(rest_.size(), 0);
  bool any = false;
  for (std::size_t i = 0; i < rest_.size(); ++i) {
    const auto waits = [&](std::uint32_t b) { return bits[b] != 0; };
    bits[i] = (!free_[i] && is_subset(wanted_[i], set)) || (barrier_[i] && any) ||
              std::ranges::any_of(before_[i], waits);
    any = any || bits[i] != 0;
  }
  return bits;
}

bool LowerSetBlocks::runs_with(std::size_t rest, std::uint32_t node) const {
  return !behind_[rest] && has_node(wanted_[rest], node) &&
         is_subset(wanted_[rest], nodes_.ancestors[node]);
}

// Whenever the op runs in a later block than the node, is the node's value on the boundary then?
// So it is if, whichever wanted node is in the later block, a reader of the value is there too.
bool LowerSetBlocks::crosses_safely(std::size_t rest, std::uint32_t node) const {
  if (behind_[rest]) return false;
  const SetWords& own = nodes_.ancestors[node];
  for (std::size_t w = 0; w < nodes_.words(); ++w) {
    for (std::uint64_t left = wanted_[rest][w] & ~own[w]; left != 0; left &= left - 1) {
      const auto other =
          static_cast<std::uint32_t>(64 * w) + static_cast<std::uint32_t>(std::countr_zero(left));
      const auto follows = [&](std::uint32_t reader) {
        return has_node(nodes_.ancestors[reader], other);
      };
      if (!std::ranges::any_of(nodes_.successors[node], follows)) return false;
    }
  }
  return true;
}

void LowerSetBlocks::find_droppable() {
  const IdVector<OpId, char> repeatable = search::repeatable_ops(graph_, /*forward_only=*/true);
  droppable_.assign(nodes_.size(), 1);
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    const VariantId variant = search::base_variant(graph_, nodes_.ops[node]);
    const auto is_output = [&](TensorId t) { return graph_.kind(t) == TensorKind::kOutput; };
    if (!repeatable[nodes_.ops[node]] || graph_.overwrites(variant).valid() ||
        std::ranges::any_of(graph_.makes(variant), is_output)) {
      droppable_[node] = 0;
    }
  }
  for (std::size_t i = 0; i < rest_.size(); ++i) {
    for (TensorId t : graph_.reads(search::base_variant(graph_, rest_[i]))) {
      const std::uint32_t node = maker_node(graph_, nodes_, t);
      if (node != LowerSetNodes::kNone && !crosses_safely(i, node)) droppable_[node] = 0;
    }
  }
}

std::vector<OpId> LowerSetBlocks::sequence(const std::vector<std::span<const std::uint64_t>>& sets,
                                           bool rerun_last, Effort& effort) const {
  const std::size_t blocks = std::max<std::size_t>(sets.size(), 1);  // none without nodes
  const auto block_of = [&](std::uint32_t node) {
    std::size_t block = 0;
    while (block + 1 < blocks && !has_node(sets[block], node)) ++block;
    return block;
  };
  std::vector<std::size_t> node_block(nodes_.size());
  std::vector<std::vector<OpId>> forward(blocks);
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    node_block[node] = block_of(node);
    forward[node_block[node]].push_back(nodes_.ops[node]);
  }
  std::vector<std::size_t> rest_block(rest_.size(), blocks - 1);
  for (std::size_t block = blocks - 1; block-- > 0;) {
    const RestBits down = pending(sets[block]);
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (down[i]) rest_block[i] = block;
    }
  }

  std::vector<OpId> sequence;
  for (const auto& ops : forward) sequence.insert(sequence.end(), ops.begin(), ops.end());
  // By node: is what it made dropped after the forward pass?
  std::vector<char> dropped(nodes_.size(), 0);
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    const std::size_t block = node_block[node];
    if (!droppable(node) || (block + 1 == blocks && !rerun_last)) continue;
    dropped[node] = std::ranges::all_of(
        nodes_.successors[node], [&](std::uint32_t reader) { return node_block[reader] == block; });
  }
  std::vector<std::size_t> again_in(nodes_.size(), SIZE_MAX);
  std::vector<std::uint32_t> again;
  const auto want = [&](VariantId variant, std::size_t block) {
    for (TensorId t : graph_.reads(variant)) {
      const std::uint32_t node = maker_node(graph_, nodes_, t);
      if (node == LowerSetNodes::kNone || !dropped[node] || again_in[node] == block) continue;
      again_in[node] = block;
      again.push_back(node);
    }
  };
  for (std::size_t block = blocks; block-- > 0;) {
    again.clear();
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (rest_block[i] == block) want(search::base_variant(graph_, rest_[i]), block);
    }
    for (std::size_t i = 0; i < again.size(); ++i) {
      want(search::base_variant(graph_, nodes_.ops[again[i]]), block);
    }
    std::ranges::sort(again);
    for (std::uint32_t node : again) sequence.push_back(nodes_.ops[node]);
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (rest_block[i] == block) sequence.push_back(rest_[i]);
    }
  }
  effort.add(static_cast<std::int64_t>(sequence.size()));
  return sequence;
}

}  // namespace regen::published
