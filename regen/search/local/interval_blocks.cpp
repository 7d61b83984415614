#include "regen/search/local/interval_blocks.h"

#include <algorithm>
#include <limits>

#include "regen/search/build/sequence.h"

namespace regen::search {
namespace {

// How many ops without values for the backward pass are followed to price one that has such values.
constexpr std::size_t kMaxChainOps = 64;
// The end of a block is searched in this last fraction of the bytes that it may hold.
constexpr double kBlockEndFraction = 0.4;
// The prices of preferred ops are multiplied by this.
constexpr double kPreferredPriceFactor = 1e-6;
// A block must release more than this many times the bytes that its end holds.
constexpr double kMinReleasedPerHeldByte = 1.0;

}  // namespace

IntervalBlocks::IntervalBlocks(const IntervalSpace& space, const IntervalPlan& kept)
    : space_(space) {
  if (space.turn.valid()) turn_ = static_cast<std::uint32_t>(space.turn.index());
  find_resting();
  find_prices();
  find_extras(kept);
}

void IntervalBlocks::find_resting() {
  const Graph& graph = space_.graph;
  resting_.assign(turn_, 0);
  passing_.assign(turn_, 0);
  rests_ = IdVector<TensorId, char>(graph.num_tensors(), 0);
  droppable_.assign(turn_, 1);
  for (std::uint32_t op = 0; op < turn_; ++op) {
    for (TensorId t : graph.makes(base_variant(graph, OpId(op)))) {
      if (graph.fixed(t)) continue;
      const IntervalId g = space_.model.interval_at(t, turn_);
      const auto bytes = static_cast<double>(graph.bytes(t));
      rests_[t] = !space_.model.last(g);
      (rests_[t] ? resting_ : passing_)[op] += bytes;
      if (!space_.model.droppable(g)) droppable_[op] = 0;
    }
  }
}

void IntervalBlocks::find_prices() {
  price_.assign(turn_, std::numeric_limits<double>::infinity());
  mark_.assign(turn_, 0);
  for (std::uint32_t op = 0; op < turn_; ++op) {
    if (resting_[op] > 0 && droppable_[op]) price_[op] = price(OpId(op)) / resting_[op];
  }
  sort_by_price();
}

void IntervalBlocks::sort_by_price() {
  by_price_.clear();
  for (std::uint32_t op = 0; op < turn_; ++op) {
    if (price_[op] < std::numeric_limits<double>::infinity()) by_price_.push_back(op);
  }
  std::ranges::stable_sort(by_price_, {}, [&](std::uint32_t op) { return price_[op]; });
}

void IntervalBlocks::prefer(const std::vector<double>& again) {
  for (std::uint32_t op = 0; op < turn_; ++op) {
    if (again[op] > 0.5) price_[op] *= kPreferredPriceFactor;
  }
  sort_by_price();
}

// The cost of its run and of the runs of all ops before it whose values do not rest.
double IntervalBlocks::price(OpId op) {
  const Graph& graph = space_.graph;
  ++round_;
  std::vector<OpId> chain{op};
  double sum = 0;
  for (std::size_t i = 0; i < chain.size() && i < kMaxChainOps; ++i) {
    const VariantId variant = base_variant(graph, chain[i]);
    sum += graph.rerun_cost(variant);
    for (TensorId t : graph.reads(variant)) {
      if (graph.fixed(t) || rests_[t]) continue;
      const OpId maker = graph.producer(t);
      if (mark_[maker.index()] == round_) continue;
      mark_[maker.index()] = round_;
      chain.push_back(maker);
    }
  }
  return sum;
}

// An op after the turn is counted at the last forward op that made one of its inputs; an op without
// such an input is counted where the backward pass is.
void IntervalBlocks::find_extras(const IntervalPlan& kept) {
  const Graph& graph = space_.graph;
  extra_.assign(turn_, 0);
  if (turn_ == 0) return;
  std::vector<double> resting_up_to = resting_;
  for (std::size_t op = 1; op < turn_; ++op) resting_up_to[op] += resting_up_to[op - 1];
  reversed_at_.assign(turn_, 0);
  std::size_t at = turn_ - 1;
  for (std::size_t stage = 0; stage < graph.num_ops(); ++stage) {
    if (stage < turn_) {
      at = stage;
    } else if (const auto last = last_forward_op_read(OpId(stage))) {
      at = *last;
      note_reversal(OpId(stage), *last);
    }
    const double beside = static_cast<double>(kept.stage_bytes[stage]) - resting_up_to[at];
    extra_[at] = std::max(extra_[at], beside);
  }
}

// The forward values that an op of the backward pass reads are there when it runs.
void IntervalBlocks::note_reversal(OpId op, std::size_t at) {
  const Graph& graph = space_.graph;
  for (TensorId t : graph.reads(base_variant(graph, op))) {
    if (graph.fixed(t) || graph.producer(t).index() >= turn_) continue;
    std::uint32_t& latest = reversed_at_[graph.producer(t).index()];
    latest = std::max(latest, static_cast<std::uint32_t>(at));
  }
}

// The last forward op that makes a value that this op reads.
std::optional<std::size_t> IntervalBlocks::last_forward_op_read(OpId op) const {
  const Graph& graph = space_.graph;
  std::optional<std::size_t> last;
  for (TensorId t : graph.reads(base_variant(graph, op))) {
    if (graph.fixed(t) || graph.producer(t).index() >= turn_) continue;
    last = std::max(last.value_or(0), graph.producer(t).index());
  }
  return last;
}

std::vector<char> IntervalBlocks::cheapest(std::size_t count) const {
  std::vector<char> dropped(turn_, 0);
  for (std::size_t i = 0; i < count; ++i) dropped[by_price_[i]] = 1;
  return dropped;
}

std::vector<std::uint32_t> IntervalBlocks::last_readers(const std::vector<char>& dropped) const {
  const Graph& graph = space_.graph;
  std::vector<std::uint32_t> last(turn_);
  std::vector<char> again = dropped;
  for (std::uint32_t op = turn_; op-- > 0;) {
    last[op] = dropped[op] ? std::max(op, reversed_at_[op]) : op;
    for (TensorId t : graph.makes(base_variant(graph, OpId(op)))) {
      if (rests_[t] && !dropped[op]) continue;
      for (OpId reader : graph.consumers(t)) {
        if (reader.index() >= turn_ || !again[reader.index()]) continue;
        last[op] = std::max(last[op], static_cast<std::uint32_t>(reader.index()));
      }
    }
    if (droppable_[op] && last[op] > op) again[op] = 1;
  }
  return last;
}

// The bytes that a cut before each op would hold in addition.
std::vector<double> IntervalBlocks::bytes_across(const std::vector<std::uint32_t>& last_reader,
                                                 const std::vector<char>& dropped) const {
  std::vector<double> change(turn_ + 2, 0);
  for (std::uint32_t op = 0; op < turn_; ++op) {
    if (last_reader[op] == op) continue;
    const double bytes = missing_bytes(op, dropped);
    change[op + 1] += bytes;
    change[last_reader[op] + 1] -= bytes;
  }
  for (std::uint32_t op = 1; op < change.size(); ++op) change[op] += change[op - 1];
  return change;
}

std::uint32_t IntervalBlocks::narrowest(std::uint32_t first, std::uint32_t last,
                                        const std::vector<double>& across) const {
  std::uint32_t best = last;
  for (std::uint32_t op = last; op-- > first;) {
    if (across[op] < across[best]) best = op;
  }
  return best;
}

// From the first op on, each block as large as it may be.
std::optional<IntervalBlocks::Cuts> IntervalBlocks::cut(
    const std::vector<char>& dropped, const std::vector<std::uint32_t>& last_reader, double bytes,
    double away) const {
  const std::vector<double> across = bytes_across(last_reader, dropped);
  Cuts cuts;
  double held = 0;  // of the blocks before
  for (std::uint32_t begin = 0; begin < turn_;) {
    double inside = 0;
    std::uint32_t end = begin;
    const double here = std::max(0.0, held - away);
    for (; end < turn_; ++end) {
      if (here + inside + resting_[end] + extra_[end] > bytes) break;
      inside += resting_[end];
    }
    if (end == begin) return std::nullopt;
    if (end < turn_) {
      const auto sought = static_cast<std::uint32_t>(kBlockEndFraction * (end - begin));
      end = narrowest(std::max(begin + 1, end - sought), end, across);
    }
    double given_back = 0;
    double at_the_end = 0;
    for (std::uint32_t op = begin; op < end; ++op) {
      if (!dropped[op]) {
        held += resting_[op];
      } else {
        given_back += resting_[op];
      }
      if (last_reader[op] >= end) at_the_end += missing_bytes(op, dropped);
    }
    if (end < turn_ && given_back <= kMinReleasedPerHeldByte * at_the_end) return std::nullopt;
    held += at_the_end;
    cuts.ends.push_back(end);
    begin = end;
  }
  return cuts;
}

Decisions IntervalBlocks::decide(const std::vector<char>& dropped,
                                 const std::vector<std::uint32_t>& last_reader, const Cuts& cuts,
                                 bool moves) const {
  const Graph& graph = space_.graph;
  Decisions decisions = space_.model.keep_everything();
  const std::uint32_t last_block = cuts.ends.size() < 2 ? 0 : cuts.ends[cuts.ends.size() - 2];
  std::size_t block = 0;
  for (std::uint32_t op = 0; op < last_block; ++op) {
    while (cuts.ends[block] <= op) ++block;
    const bool wanted_later = last_reader[op] >= cuts.ends[block];
    for (TensorId t : graph.makes(base_variant(graph, OpId(op)))) {
      if (graph.fixed(t)) continue;
      const IntervalId g = space_.model.interval_at(t, turn_);
      if (!space_.model.droppable(g)) continue;
      if (rests_[t] && dropped[op] && !wanted_later) decisions[g] = Holding::kDropped;
      if (!rests_[t] && wanted_later) decisions[g] = Holding::kHeld;
    }
  }
  for (const IntervalId g : space_.over_turn) {
    if (moves && decisions[g] == Holding::kHeld) decisions[g] = Holding::kMoved;
  }
  return decisions;
}

std::optional<Decisions> IntervalBlocks::within(double bytes, double least_fraction,
                                                double away) const {
  std::optional<Decisions> best;
  // The smallest sufficient number, by bisection, as if sufficiency were monotone.
  auto low = static_cast<std::size_t>(least_fraction * static_cast<double>(by_price_.size()));
  std::size_t high = by_price_.size() + 1;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    const std::vector<char> dropped = cheapest(middle);
    const std::vector<std::uint32_t> last_reader = last_readers(dropped);
    const std::optional<Cuts> cuts = cut(dropped, last_reader, bytes, away);
    if (cuts) {
      best = decide(dropped, last_reader, *cuts, away > 0);
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return best;
}

}  // namespace regen::search
