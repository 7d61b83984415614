#include "regen/search/heuristics/chain_table.h"

#include <algorithm>

#include "regen/base/tolerance.h"

namespace regen::search {

ChainTable::ChainTable(std::span<const BlockCosts> blocks, const ChainTableOptions& options,
                       Effort& effort)
    : blocks_(blocks), options_(options) {
  const std::size_t num_cells = blocks_.size() * blocks_.size() * 6;
  cells_.resize(num_cells);
  by_start_.resize(num_cells);
  by_end_.resize(num_cells);
  find_needs();
  find_least_costs();
  for_each_range([&](const Range& range) {
    complete_ = complete_ && !effort.exhausted();
    if (complete_) fill(range, effort);
  });
}

bool ChainTable::occurs(const Range& range) const {
  const BlockCosts& end = blocks_[range.t];
  if (range.pending != kBoth && first_run(range)) return false;
  if (range.pending == kLate && !end.has_early) return false;
  if (range.pending == kLateWithValue && !end.late_reads_value) return false;
  if (!range.input_counted) return true;
  return range.s > 0 && (blocks_[range.s - 1].has_early || blocks_[range.s - 1].saves_value);
}

// Every way is made of shorter ranges, or of the same one when its early part is done.
template <typename Visit>
void ChainTable::for_each_range(const Visit& visit) {
  for (std::size_t length = 0; length < blocks_.size(); ++length) {
    for (std::size_t s = 0; s + length < blocks_.size(); ++s) {
      for (const Pending pending : {kLateWithValue, kLate, kBoth}) {
        for (const bool input_counted : {false, true}) {
          const Range range{s, s + length, pending, input_counted};
          if (occurs(range)) visit(range);
        }
      }
    }
  }
}

bool ChainTable::must_do_next(const Range& range) const {
  return range.s < range.t && !first_run(range) && !blocks_[range.t].needs_input[range.pending];
}

void ChainTable::find_needs() {
  needs_input_.assign(cells_.size(), 1);
  for_each_range([&](const Range& range) {
    bool needs = true;
    if (range.s == range.t) {
      needs = blocks_[range.s].needs_input[range.pending];
    } else if (must_do_next(range)) {
      needs = needs_input(range.s, range.t - 1, kBoth);
    }
    needs_input_[index(range)] = needs;
  });
}

bool ChainTable::needs_input(std::size_t s, std::size_t t, Pending pending) const {
  return needs_input_[index({s, t, pending, false})] != 0;
}

Bytes ChainTable::value_bytes(const Range& range) const {
  return range.pending == kLateWithValue ? blocks_[range.t].value_bytes : 0;
}

// What is on the device during a forward run besides what the run itself counts.
Bytes ChainTable::base(const Range& range, std::size_t block) const {
  if (first_run(range)) return blocks_[block].first_base;
  return blocks_[range.t].base[range.pending] + value_bytes(range);
}

ChainTable::Way ChainTable::way_last(const Range& range) const {
  const BlockCosts& block = blocks_[range.s];
  const RunCost& run = block.last[range.pending][range.input_counted];
  const RunCost& reversal = block.reversal[range.pending][range.input_counted];
  return {.kind = Way::kLast,
          .bytes = std::max(run.peak + base(range, range.s), reversal.peak),
          .cost = run.cost + reversal.cost};
}

ChainTable::Way ChainTable::way_save(const Range& range) const {
  const BlockCosts& block = blocks_[range.s];
  const RunCost& run = block.save[first_run(range)][range.input_counted];
  const RunCost& reversal = block.reversal[kBoth][range.input_counted];
  const bool holds_input = !range.input_counted && block.reads_input;
  return {.kind = Way::kSave,
          .bytes = std::max(run.peak + base(range, range.s), reversal.peak),
          .cost = run.cost + reversal.cost,
          .first = Range{range.s + 1, range.t, range.pending, block.saves_value},
          .first_held = block.saved_bytes + (holds_input ? block.input_bytes : 0)};
}

ChainTable::Way ChainTable::way_next(const Range& range) const {
  const BlockCosts& block = blocks_[range.t];
  const RunCost& run = block.last[range.pending][1];
  const RunCost& reversal = block.reversal[range.pending][1];
  const bool holds_input = !range.input_counted && needs_input(range.s, range.t - 1, kBoth);
  const Bytes held = holds_input ? blocks_[range.s].input_bytes : 0;
  return {.kind = Way::kNext,
          .bytes = held + std::max(run.peak + base(range, range.t), reversal.peak),
          .cost = run.cost + reversal.cost,
          .first = Range{range.s, range.t - 1, kBoth, range.input_counted}};
}

// `after` is what is pending of k-1 when reverse(s..k-1) begins.
std::optional<ChainTable::Way> ChainTable::way_store(const Range& range, std::size_t k,
                                                     Pending after, const Sweep& sweep) const {
  const BlockCosts& start = blocks_[range.s];
  const BlockCosts& before = blocks_[k - 1];
  const Range second{range.s, k - 1, after, range.input_counted};
  if (!occurs(second)) return std::nullopt;
  const bool needed = needs_input(range.s, k - 1, after);
  const ChainInput mode = range.input_counted ? kOthers : needed ? kStays : kGoes;
  const RunCost& run = start.pass[first_run(range)][mode];
  const Bytes held = mode == kStays ? start.input_bytes : 0;
  Way way{.kind = Way::kStore,
          .k = k,
          .early = after != kBoth,
          .bytes = std::max(run.peak + base(range, range.s), sweep.peak + held),
          .cost = run.cost + sweep.cost,
          .second = second};
  if (k <= range.t) {
    way.first = Range{k, range.t, range.pending, way.early};
    way.first_held = held + (way.early ? before.value_bytes : 0);
  }
  if (way.early) {
    const RunCost& early = before.early[after == kLateWithValue];
    way.bytes = std::max(way.bytes, early.peak + held);
    way.cost += early.cost;
  }
  return way;
}

template <typename Visit>
void ChainTable::for_each_store(const Range& range, const Visit& visit) const {
  // With an early part pending, to do that alone is the last possibility.
  const bool early_alone = range.pending == kBoth && !first_run(range);
  Sweep sweep;
  for (std::size_t k = range.s + 1; k <= range.t + (early_alone ? 1 : 0); ++k) {
    if (k - 1 > range.s) {
      const RunCost& run = blocks_[k - 1].pass[first_run(range)][kGoes];
      sweep.peak = std::max(sweep.peak, run.peak + base(range, k - 1));
      sweep.cost += run.cost;
    }
    for (const Pending after : {kBoth, kLate, kLateWithValue}) {
      if (k > range.t && (after == kBoth || !blocks_[range.t].has_early)) continue;
      if (const auto way = way_store(range, k, after, sweep)) visit(*way);
    }
  }
}

template <typename Visit>
void ChainTable::for_each_way(const Range& range, const Visit& visit) const {
  if (must_do_next(range)) return visit(way_next(range));
  visit(range.s == range.t ? way_last(range) : way_save(range));
  for_each_store(range, visit);
}

StairSum ChainTable::sum(const Way& way) const {
  return {.bytes = way.bytes,
          .cost = way.cost,
          .first = way.first ? &cells_[index(*way.first)] : nullptr,
          .first_held = way.first_held,
          .second = way.second ? &cells_[index(*way.second)] : nullptr};
}

bool ChainTable::may_improve(const Way& way) const {
  Bytes bytes = way.bytes;
  double lowest = way.cost;
  if (way.first) {
    const Outline& first = by_end_[index_by_end(*way.first)];
    bytes = std::max(bytes, first.least_bytes + way.first_held);
    lowest += first.lowest_cost;
  }
  if (way.second) {
    const Outline& second = by_start_[index(*way.second)];
    bytes = std::max(bytes, second.least_bytes);
    lowest += second.lowest_cost;
  }
  return minimum_.may_improve(bytes, lowest);
}

void ChainTable::find_least_costs() {
  const auto least = [](const auto& runs) {
    double cost = kImpossible;
    for (const RunCost& run : runs) cost = std::min(cost, run.cost);
    return cost;
  };
  first_costs_ = reversal_costs_ = {0.0};
  for (const BlockCosts& block : blocks_) {
    const double first = std::min(least(block.pass[1]), least(block.save[1]));
    first_costs_.push_back(first_costs_.back() + first);
    reversal_costs_.push_back(reversal_costs_.back() + least(block.reversal[kBoth]));
  }
}

// What the range may cost in a schedule within the wanted cost, which has to pay at least for the
// first runs and the reversals that are not part of the range.
double ChainTable::most_cost(const Range& range) const {
  if (options_.most_cost == kImpossible) return kImpossible;
  double others = reversal_costs_.back() - reversal_costs_[range.t + 1] + reversal_costs_[range.s];
  others += first_run(range) ? first_costs_[range.s] : first_costs_.back();
  if (range.pending != kBoth) {
    others += std::min(blocks_[range.t].early[0].cost, blocks_[range.t].early[1].cost);
  }
  return options_.most_cost - others + options_.most_cost * kSameCost;
}

void ChainTable::fill(const Range& range, Effort& effort) {
  const double most = most_cost(range);
  minimum_.start(options_.budget, most);
  std::size_t work = 0;
  for_each_way(range,
               [&](const Way& way) { work += may_improve(way) ? minimum_.add(sum(way)) : 1; });
  effort.add(static_cast<std::int64_t>(work));
  Staircase& cell = cells_[index(range)];
  cell = minimum_.best();
  thinned_ = thinned_ || cell.size() > options_.max_corners;
  thin(cell, options_.max_corners);
  if (cell.empty()) return;
  const Outline outline{cell.front().bytes, cell.back().cost};
  by_start_[index(range)] = by_end_[index_by_end(range)] = outline;
}

std::vector<ChainRun> ChainTable::schedule(Bytes bytes) const {
  std::vector<ChainRun> runs;
  unroll({.s = 0, .t = blocks_.size() - 1}, bytes, runs);
  return runs;
}

void ChainTable::unroll(const Range& range, Bytes bytes, std::vector<ChainRun>& runs) const {
  Way best;
  double least = kImpossible;
  for_each_way(range, [&](const Way& way) {
    const double cost = cost_at(sum(way), bytes);
    if (cost >= least) return;
    least = cost;
    best = way;
  });
  const bool first = first_run(range);
  if (best.kind == Way::kLast || best.kind == Way::kNext) {
    runs.push_back({range.t, ChainRun::kLast, first, range.pending});
    runs.push_back({range.t, ChainRun::kReversal, first, range.pending});
  } else if (best.kind == Way::kSave) {
    runs.push_back({range.s, ChainRun::kSave, first});
  }
  for (std::size_t b = range.s; best.kind == Way::kStore && b < best.k; ++b) {
    runs.push_back({b, ChainRun::kPass, first});
  }
  if (best.first) unroll(*best.first, bytes - best.first_held, runs);
  if (best.early) runs.push_back({best.k - 1, ChainRun::kEarly});
  if (best.second) unroll(*best.second, bytes, runs);
  if (best.kind == Way::kSave) runs.push_back({range.s, ChainRun::kReversal});
}

}  // namespace regen::search
