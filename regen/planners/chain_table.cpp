#include "regen/planners/chain_table.h"

#include <algorithm>

namespace regen {

ChainTable::ChainTable(std::span<const BlockCosts> blocks, const ChainTableOptions& options,
                       Effort& effort)
    : blocks_(blocks), options_(options) {
  const std::size_t num_cells = blocks_.size() * blocks_.size() * 4;
  cells_.resize(num_cells);
  find_needs();
  double slack = kImpossible;
  if (options_.most_cost < kImpossible) {
    find_free_costs();
    slack = options_.most_cost - free_costs_[root()];
  }
  for_each_range([&](const Range& range) {
    complete_ = complete_ && !effort.exhausted();
    if (complete_) fill(range, slack, effort);
  });
}

bool ChainTable::occurs(const Range& range) const {
  if (range.value_there && (first_run(range) || !blocks_[range.t].reads_value)) return false;
  return !range.input_counted || (range.s > 0 && blocks_[range.s - 1].reads_value);
}

// Short ranges first: every way is made of shorter ones.
template <typename Visit>
void ChainTable::for_each_range(const Visit& visit) {
  for (std::size_t length = 0; length < blocks_.size(); ++length) {
    for (std::size_t s = 0; s + length < blocks_.size(); ++s) {
      for (const bool value_there : {false, true}) {
        for (const bool input_counted : {false, true}) {
          const Range range{s, s + length, value_there, input_counted};
          if (occurs(range)) visit(range);
        }
      }
    }
  }
}

bool ChainTable::must_do_next(const Range& range) const {
  return range.s < range.t && !first_run(range) && !blocks_[range.t].needs_input[range.value_there];
}

void ChainTable::find_needs() {
  needs_input_.assign(cells_.size(), 1);
  for_each_range([&](const Range& range) {
    bool needs = true;
    if (range.s == range.t) {
      needs = blocks_[range.s].needs_input[range.value_there];
    } else if (must_do_next(range)) {
      needs = needs_input(range.s, range.t - 1, false);
    }
    needs_input_[index(range)] = needs;
  });
}

bool ChainTable::needs_input(std::size_t s, std::size_t t, bool value_there) const {
  return needs_input_[index({s, t, value_there, false})] != 0;
}

// What is on the device during a forward run besides what the run itself counts.
Bytes ChainTable::base(const Range& range, std::size_t block) const {
  const Bytes there = first_run(range) ? blocks_[block].first_base : blocks_[range.t].base;
  return there + (range.value_there ? blocks_[range.t].value_bytes : 0);
}

ChainTable::Way ChainTable::way_last(const Range& range) const {
  const BlockCosts& block = blocks_[range.s];
  const RunCost& run = block.last[range.value_there][range.input_counted];
  const RunCost& reversal = block.reversal[range.input_counted];
  return {.kind = Way::kLast,
          .bytes = std::max(run.peak + base(range, range.s), reversal.peak),
          .cost = run.cost + reversal.cost};
}

ChainTable::Way ChainTable::way_save(const Range& range) const {
  const BlockCosts& block = blocks_[range.s];
  const RunCost& run = block.save[first_run(range)][range.input_counted];
  const RunCost& reversal = block.reversal[range.input_counted];
  const bool holds_input = !range.input_counted && block.reads_input;
  return {.kind = Way::kSave,
          .bytes = std::max(run.peak + base(range, range.s), reversal.peak),
          .cost = run.cost + reversal.cost,
          .first = Range{range.s + 1, range.t, range.value_there, block.reads_value},
          .first_held = block.saved_bytes + (holds_input ? block.input_bytes : 0)};
}

ChainTable::Way ChainTable::way_next(const Range& range) const {
  const BlockCosts& block = blocks_[range.t];
  const RunCost& run = block.last[range.value_there][1];
  const RunCost& reversal = block.reversal[1];
  const bool holds_input = !range.input_counted && needs_input(range.s, range.t - 1, false);
  const Bytes held = holds_input ? blocks_[range.s].input_bytes : 0;
  return {.kind = Way::kNext,
          .bytes = held + std::max(run.peak + base(range, range.t), reversal.peak),
          .cost = run.cost + reversal.cost,
          .first = Range{range.s, range.t - 1, false, range.input_counted}};
}

template <typename Visit>
void ChainTable::for_each_store(const Range& range, const Visit& visit) const {
  const bool first = first_run(range);
  const BlockCosts& start = blocks_[range.s];
  Bytes rest_peak = 0;  // of the runs after that of s
  double rest_cost = 0;
  for (std::size_t k = range.s + 1; k <= range.t; ++k) {
    const BlockCosts& before = blocks_[k - 1];
    if (k - 1 > range.s) {
      const RunCost& run = before.pass[first][kGoes];
      rest_peak = std::max(rest_peak, run.peak + base(range, k - 1));
      rest_cost += run.cost;
    }
    for (const bool stays : {false, true}) {
      if (stays && !before.reads_value) continue;
      const bool needed = needs_input(range.s, k - 1, stays);
      const ChainInput mode = range.input_counted ? kOthers : needed ? kStays : kGoes;
      const RunCost& run = start.pass[first][mode];
      const Bytes held = mode == kStays ? start.input_bytes : 0;
      const Bytes rest = rest_peak == 0 ? 0 : rest_peak + held;
      visit(Way{.kind = Way::kStore,
                .k = k,
                .bytes = std::max(run.peak + base(range, range.s), rest),
                .cost = run.cost + rest_cost,
                .first = Range{k, range.t, range.value_there, stays},
                .first_held = held + (stays ? before.value_bytes : 0),
                .second = Range{range.s, k - 1, stays, range.input_counted}});
    }
  }
}

template <typename Visit>
void ChainTable::for_each_way(const Range& range, const Visit& visit) const {
  if (must_do_next(range)) return visit(way_next(range));
  if (range.s == range.t) return visit(way_last(range));
  visit(way_save(range));
  for_each_store(range, visit);
}

StairSum ChainTable::sum(const Way& way) const {
  return {.bytes = way.bytes,
          .cost = way.cost,
          .first = way.first ? &cells_[index(*way.first)] : nullptr,
          .first_held = way.first_held,
          .second = way.second ? &cells_[index(*way.second)] : nullptr};
}

void ChainTable::find_free_costs() {
  free_costs_.assign(cells_.size(), kImpossible);
  for_each_range([&](const Range& range) {
    double& least = free_costs_[index(range)];
    for_each_way(range, [&](const Way& way) {
      const double first = way.first ? free_costs_[index(*way.first)] : 0;
      const double second = way.second ? free_costs_[index(*way.second)] : 0;
      least = std::min(least, way.cost + first + second);
    });
  });
}

// A schedule that costs more than the cheapest for its range by over `slack` cannot be part of one
// within the wanted cost, as the rest of the whole cannot be cheaper than without a budget.
void ChainTable::fill(const Range& range, double slack, Effort& effort) {
  constexpr double kRounding = 1 + 1e-9;
  const double most =
      free_costs_.empty() ? kImpossible : (free_costs_[index(range)] + slack) * kRounding;
  minimum_.start(options_.budget);
  std::size_t work = 0;
  for_each_way(range, [&](const Way& way) { work += minimum_.add(sum(way), most); });
  Staircase& cell = cells_[index(range)];
  const auto wanted =
      std::ranges::find_if(minimum_.best(), [&](const Corner& c) { return c.cost <= most; });
  cell.assign(wanted, minimum_.best().end());
  thinned_ = thinned_ || cell.size() > options_.max_corners;
  thin(cell, options_.max_corners);
  effort.add(static_cast<std::int64_t>(work));
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
    runs.push_back(
        {range.t, range.value_there ? ChainRun::kLastWithValue : ChainRun::kLast, first});
    runs.push_back({range.t, ChainRun::kReversal});
  } else if (best.kind == Way::kSave) {
    runs.push_back({range.s, ChainRun::kSave, first});
  }
  for (std::size_t b = range.s; best.kind == Way::kStore && b < best.k; ++b) {
    runs.push_back({b, ChainRun::kPass, first});
  }
  if (best.first) unroll(*best.first, bytes - best.first_held, runs);
  if (best.second) unroll(*best.second, bytes, runs);
  if (best.kind == Way::kSave) runs.push_back({range.s, ChainRun::kReversal});
}

}  // namespace regen
