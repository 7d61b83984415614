#include "regen/published/lower_sets/canonical_strategy.h"

#include <algorithm>
#include <bit>

#include "regen/published/lower_sets/canonical_schedule.h"

namespace regen::published {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

}  // namespace

Result<CanonicalStrategy> CanonicalStrategy::of(const Graph& graph, const LowerSetNodes& nodes) {
  CanonicalStrategy strategy(graph, nodes);
  REGEN_ASSIGN(const auto places, blocks_in_file(graph));
  REGEN_ASSIGN(strategy.file_, lower_sets_from_graph(graph));
  strategy.ops_.resize(strategy.file_.blocks.size());
  for (OpId op : graph.ops()) {
    if (!places[op]) {
      strategy.sums_.push_back(op);
      continue;
    }
    strategy.ops_[*places[op]] = op;
  }
  if (2 * nodes.size() != strategy.file_.blocks.size()) {
    return bad_input("not all forward blocks of the file are nodes of the lower sets");
  }
  for (OpId op : nodes.ops) {
    strategy.file_block_.push_back(*places[op]);
    strategy.reads_own_.push_back(reads_own_output(strategy.file_, *places[op]));
  }
  return strategy;
}

std::vector<std::uint32_t> CanonicalStrategy::blocks_of(
    const std::vector<std::span<const std::uint64_t>>& sets) const {
  std::vector<std::uint32_t> block(nodes_->size(), kNone);
  for (std::uint32_t i = 0; i < sets.size(); ++i) {
    for (std::size_t w = 0; w < sets[i].size(); ++w) {
      std::uint64_t fresh = sets[i][w] & ~(i == 0 ? 0 : sets[i - 1][w]);
      for (; fresh != 0; fresh &= fresh - 1) {
        block[64 * w + static_cast<std::size_t>(std::countr_zero(fresh))] = i;
      }
    }
  }
  return block;
}

Schedule CanonicalStrategy::schedule(
    const std::vector<std::span<const std::uint64_t>>& sets) const {
  const std::vector<std::uint32_t> block = blocks_of(sets);
  std::vector<std::uint32_t> chain_block(block.size(), 0);
  for (std::uint32_t node = 0; node < block.size(); ++node) {
    chain_block[file_block_[node]] = block[node];
  }
  return canonical_schedule(file_, file_block_, chain_block);
}

// A node reads its own value backward when the blocks of what it reads are reversed. By then it is
// there only if it is made in the same block, or waits together with the gradient of a reader that
// reads something as early.
double CanonicalStrategy::overhead(const std::vector<std::span<const std::uint64_t>>& sets) const {
  const std::vector<std::uint32_t> block = blocks_of(sets);
  std::vector<std::uint32_t> first_read(block.size(), kNone);
  double sum = 0;
  for (std::uint32_t node = 0; node < block.size(); ++node) {
    for (std::uint32_t read : nodes_->predecessors[node]) {
      first_read[node] = std::min(first_read[node], block[read]);
    }
  }
  std::vector<std::uint32_t> reversed_in;
  for (std::uint32_t node = 0; node < block.size(); ++node) {
    const auto& readers = nodes_->successors[node];
    const auto later = [&](std::uint32_t reader) { return block[reader] > block[node]; };
    if (std::ranges::none_of(readers, later)) sum += nodes_->costs[node];
    if (!reads_own_[node]) continue;
    reversed_in.clear();
    for (std::uint32_t read : nodes_->predecessors[node]) reversed_in.push_back(block[read]);
    std::ranges::sort(reversed_in);
    reversed_in.erase(std::unique(reversed_in.begin(), reversed_in.end()), reversed_in.end());
    for (std::uint32_t place : reversed_in) {
      const auto waits = [&](std::uint32_t reader) { return first_read[reader] <= place; };
      const bool here = place == block[node] || std::ranges::any_of(readers, waits);
      if (!here) sum += nodes_->costs[node];
    }
  }
  return sum;
}

std::vector<OpId> CanonicalStrategy::sequence(const Schedule& schedule) const {
  std::vector<OpId> sequence;
  IdVector<TensorId, char> made(graph_->num_tensors(), 0);
  std::vector<char> ran(graph_->num_ops(), 0);
  const auto run = [&](OpId op) {
    sequence.push_back(op);
    ran[op.index()] = 1;
    for (TensorId t : graph_->outputs(op)) made[t] = 1;
  };
  // Parts of a gradient are added as soon as both are there; a sum may be a part of the next one.
  const auto ready = [&](OpId op) {
    return !ran[op.index()] &&
           std::ranges::all_of(graph_->inputs(op), [&](TensorId t) { return made[t] != 0; });
  };
  const auto add_up = [&](OpId op, const auto& self) -> void {
    for (TensorId t : graph_->outputs(op)) {
      for (OpId reader : graph_->consumers(t)) {
        if (!std::ranges::binary_search(sums_, reader) || !ready(reader)) continue;
        run(reader);
        self(reader, self);
      }
    }
  };
  for (const ScheduleOrder& order : schedule) {
    if (order.kind != OrderKind::kCompute) continue;
    const OpId op = ops_[order.id];
    const bool backward = file_.blocks[order.id].backward;
    if (backward && ran[op.index()]) continue;  // a further part
    run(op);
    if (backward) add_up(op, add_up);
  }
  return sequence;
}

}  // namespace regen::published
