#include "regen/search/heuristics/chain_blocks.h"

#include <algorithm>
#include <optional>

#include "regen/search/build/sequence.h"

namespace regen::search {
namespace {

// A place after forward op `op` where blocks can part.
struct Cut {
  std::size_t op = 0;
  TensorId value;
};

class BlockMaker {
 public:
  BlockMaker(const Graph& graph, const ChainBlockLimits& limits)
      : graph_(graph),
        limits_(limits),
        repeatable_(repeatable_ops(graph, /*forward_only=*/true)),
        block_(graph.num_ops(), 0),
        marked_(graph.num_tensors(), 0),
        round_found_(graph.num_ops(), 0) {}

  ChainBlocks make() {
    while (chain_.num_forward < graph_.num_ops() &&
           graph_.phase(OpId(chain_.num_forward)) == Phase::kForward) {
      ++chain_.num_forward;
    }
    find_lasting();
    cut_forward();
    assign_reversals();
    find_ends_of_lasting();
    for (std::size_t b = 0; b < chain_.blocks.size(); ++b) find_reads(b);
    for (std::size_t b = 0; b < chain_.blocks.size(); ++b) find_reruns(b);
    return std::move(chain_);
  }

 private:
  std::span<const TensorId> reads(OpId op) const { return graph_.reads(base_variant(graph_, op)); }
  std::span<const TensorId> makes(OpId op) const { return graph_.makes(base_variant(graph_, op)); }
  bool in_forward(OpId op) const { return op.valid() && op.index() < chain_.num_forward; }
  // Made by the forward pass and subject to re-runs.
  bool droppable(TensorId t) const { return in_forward(graph_.producer(t)) && !chain_.lasting[t]; }
  std::size_t block_of(TensorId t) const { return block_[graph_.producer(t)]; }
  // The value that passes from its block to the next.
  bool passes_on(TensorId t) const { return chain_.blocks[block_of(t)].value == t; }

  void find_lasting() {
    chain_.lasting.assign(graph_.num_tensors(), 0);
    chain_.lasts_until.assign(graph_.num_tensors(), ChainBlocks::kForever);
    for (std::size_t i = 0; i < chain_.num_forward; ++i) {
      for (TensorId t : makes(OpId(i))) {
        const bool wanted_again = std::ranges::any_of(graph_.consumers(t), [&](OpId reader) {
          return !in_forward(reader) || repeatable_[reader];
        });
        chain_.lasting[t] =
            graph_.kind(t) == TensorKind::kOutput || (!repeatable_[OpId(i)] && wanted_again);
        chain_.exact = chain_.exact && !chain_.lasting[t];
      }
    }
  }

  // The values that are made at or before an op and read after it, counted at every op; their
  // ids are summed up, so that the sum is the id where there is one value.
  std::vector<Cut> find_cuts() const {
    std::vector<std::int64_t> count(chain_.num_forward + 1, 0);
    std::vector<std::int64_t> id_sum(chain_.num_forward + 1, 0);
    std::vector<char> barred(graph_.num_tensors(), 0);
    std::vector<std::size_t> last_read(graph_.num_tensors(), 0);
    for (std::size_t i = 0; i < chain_.num_forward; ++i) {
      for (TensorId t : reads(OpId(i))) last_read[t.index()] = i;
      // A value that every run of its reader destroys cannot wait for a second run.
      const TensorId old = graph_.overwrites(base_variant(graph_, OpId(i)));
      if (old.valid()) barred[old.index()] = 1;
    }
    for (TensorId t : graph_.tensors()) {
      if (!droppable(t)) continue;
      const std::size_t made = graph_.producer(t).index();
      if (last_read[t.index()] <= made) continue;
      const auto id = static_cast<std::int64_t>(t.index());
      ++count[made], id_sum[made] += id;
      --count[last_read[t.index()]], id_sum[last_read[t.index()]] -= id;
    }
    std::vector<Cut> cuts;
    for (std::size_t i = 0; i + 1 < chain_.num_forward; ++i) {
      count[i + 1] += count[i], id_sum[i + 1] += id_sum[i];
      // With no value at all, lasting ones link the two sides, or the first ops make nothing.
      if (count[i] > 1 || (count[i] == 0 && chain_.exact)) continue;
      const TensorId value =
          count[i] == 0 ? TensorId::none() : TensorId(static_cast<std::size_t>(id_sum[i]));
      const bool again = value.valid() && !cuts.empty() && cuts.back().value == value;
      if (again || (value.valid() && barred[value.index()])) continue;
      cuts.push_back({i, value});
    }
    return cuts;
  }

  // Of too many cuts those are left that part the forward pass into about equal costs.
  void thin(std::vector<Cut>& cuts) {
    if (cuts.size() < limits_.max_blocks) return;
    chain_.merged = true;
    std::vector<double> until{0.0};
    for (std::size_t i = 0; i < chain_.num_forward; ++i) {
      until.push_back(until.back() + graph_.rerun_cost(base_variant(graph_, OpId(i))));
    }
    const auto parts = static_cast<double>(limits_.joined_blocks);
    std::vector<Cut> kept;
    for (const Cut& cut : cuts) {
      const double wanted = until.back() * static_cast<double>(kept.size() + 1) / parts;
      if (kept.size() + 1 < limits_.joined_blocks && until[cut.op + 1] >= wanted)
        kept.push_back(cut);
    }
    cuts = std::move(kept);
  }

  void cut_forward() {
    std::vector<Cut> cuts = find_cuts();
    thin(cuts);
    chain_.blocks.resize(cuts.size() + 1);
    std::size_t b = 0;
    for (std::size_t i = 0; i < chain_.num_forward; ++i) {
      chain_.blocks[b].ops.emplace_back(i);
      block_[OpId(i)] = static_cast<std::uint32_t>(b);
      if (b == cuts.size() || cuts[b].op != i) continue;
      chain_.blocks[b].value = cuts[b].value;
      ++b;
    }
  }

  // Whether the late part of block `b` may read t; the early part reads the value alone.
  bool allows(std::size_t b, TensorId t) const {
    const std::size_t home = block_of(t);
    return b == home || (b == home + 1 && passes_on(t));
  }

  // The block for which the op belongs to the early part: it reads that block's value and no
  // other that can be dropped. None otherwise.
  std::optional<std::size_t> early_block(OpId op) const {
    std::optional<std::size_t> found;
    for (TensorId t : reads(op)) {
      if (!droppable(t)) continue;
      const std::size_t home = block_of(t);
      if (!passes_on(t) || (found && *found != home)) return std::nullopt;
      found = home;
    }
    return found;
  }

  std::size_t latest_block(OpId op, std::size_t at) const {
    for (TensorId t : reads(op)) {
      if (droppable(t)) at = std::min(at, block_of(t) + (passes_on(t) ? 1 : 0));
    }
    return at;
  }

  // With each op behind the forward pass in the latest block, at most that of the op before it,
  // where it finds all it reads. Where there is none, what is not found has to last.
  void pin_what_is_out_of_reach() {
    std::size_t at = chain_.blocks.size() - 1;
    for (std::size_t i = chain_.num_forward; i < graph_.num_ops(); ++i) {
      at = latest_block(OpId(i), at);
      for (TensorId t : reads(OpId(i))) {
        if (droppable(t) && !allows(at, t)) chain_.lasting[t] = 1;
      }
    }
  }

  // For each op behind the forward pass the earliest block, counted from the front, to which it
  // may belong so that the ops from it on still find what they read.
  std::vector<std::size_t> earliest_blocks() const {
    std::vector<std::size_t> earliest(graph_.num_ops() + 1, 0);
    for (std::size_t i = graph_.num_ops(); i-- > chain_.num_forward;) {
      earliest[i] = earliest[i + 1];
      for (TensorId t : reads(OpId(i))) {
        if (droppable(t)) earliest[i] = std::max(earliest[i], block_of(t));
      }
    }
    return earliest;
  }

  // Ops that read one value alone go to the early part of its block, as long as no later op needs
  // more of the blocks behind; the others to the latest late part they can.
  void assign_reversals() {
    pin_what_is_out_of_reach();
    const std::vector<std::size_t> earliest = earliest_blocks();
    std::size_t at = chain_.blocks.size() - 1;
    bool early = false;
    for (std::size_t i = chain_.num_forward; i < graph_.num_ops(); ++i) {
      const OpId op(i);
      const auto own = early_block(op);
      const auto wanted = [&](TensorId t) { return droppable(t); };
      if (own && *own >= earliest[i] && (*own < at || (*own == at && early))) {
        at = *own;
        early = true;
      } else if (std::ranges::any_of(reads(op), wanted)) {
        at = latest_block(op, at);
        early = false;
      }
      block_[op] = static_cast<std::uint32_t>(at);
      (early ? chain_.blocks[at].early : chain_.blocks[at].late).push_back(op);
    }
  }

  // A lasting value serves re-runs until its block is reversed, and every op that reads it.
  void find_ends_of_lasting() {
    for (TensorId t : graph_.tensors()) {
      if (!chain_.lasting[t]) continue;
      chain_.exact = false;
      if (graph_.kind(t) == TensorKind::kOutput) continue;
      std::size_t until = block_of(t);
      for (OpId reader : graph_.consumers(t)) {
        if (!in_forward(reader)) until = std::min<std::size_t>(until, block_[reader]);
      }
      chain_.lasts_until[t] = static_cast<std::int64_t>(until);
    }
  }

  void find_reads(std::size_t b) {
    ChainBlock& block = chain_.blocks[b];
    for (OpId op : block.late) {
      for (TensorId t : reads(op)) {
        if (!droppable(t)) continue;
        if (block_of(t) != b) {
          block.reads_input = true;
        } else if (!marked_[t]) {
          marked_[t] = 1;
          block.saved_late.push_back(t);
        }
      }
    }
    block.saved = block.saved_late;
    const auto reads_it = [&](OpId op) { return reads_tensor(op, block.value); };
    const bool wanted = block.value.valid() && droppable(block.value) && !marked_[block.value];
    if (wanted && std::ranges::any_of(block.early, reads_it)) block.saved.push_back(block.value);
  }

  bool reads_tensor(OpId op, TensorId t) const { return std::ranges::count(reads(op), t) > 0; }

  // The ops of the block without which some of `wanted` cannot be made, ascending.
  std::vector<OpId> needed_for(std::size_t b, std::vector<TensorId> wanted, TensorId there) {
    std::vector<OpId> found;
    ++round_;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const TensorId t = wanted[i];
      if (!t.valid() || t == there || !droppable(t) || block_of(t) != b) continue;
      const OpId op = graph_.producer(t);
      if (!repeatable_[op] || round_found_[op] == round_) continue;
      round_found_[op] = round_;
      found.push_back(op);
      const auto more = reads(op);
      wanted.insert(wanted.end(), more.begin(), more.end());
    }
    std::ranges::sort(found);
    return found;
  }

  void find_reruns(std::size_t b) {
    ChainBlock& block = chain_.blocks[b];
    std::vector<TensorId> all = block.saved;
    all.push_back(block.value);
    block.pass = needed_for(b, {block.value}, TensorId::none());
    block.save = needed_for(b, all, TensorId::none());
    block.last[kBoth] = needed_for(b, block.saved, TensorId::none());
    block.last[kLate] = needed_for(b, block.saved_late, TensorId::none());
    block.last[kLateWithValue] = needed_for(b, block.saved_late, block.value);
    if (b == 0 || b + 1 == chain_.blocks.size()) return;
    const TensorId input = chain_.blocks[b - 1].value;
    const auto reads_it = [&](OpId op) { return reads_tensor(op, input); };
    chain_.exact = chain_.exact && std::ranges::any_of(block.pass, reads_it);
  }

  const Graph& graph_;
  const ChainBlockLimits limits_;
  const IdVector<OpId, char> repeatable_;
  IdVector<OpId, std::uint32_t> block_;  // of a forward op, or of the block that an op reverses
  IdVector<TensorId, char> marked_;      // is in some block's `saved_late`
  IdVector<OpId, std::uint32_t> round_found_;  // the last call of needed_for that found the op
  std::uint32_t round_ = 0;
  ChainBlocks chain_;
};

}  // namespace

ChainBlocks make_chain_blocks(const Graph& graph, const ChainBlockLimits& limits) {
  return BlockMaker(graph, limits).make();
}

}  // namespace regen::search
