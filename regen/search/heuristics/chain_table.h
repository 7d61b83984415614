// The cheapest persistent schedules of a chain of blocks, by dynamic programming.
//
// reverse(s..t) means: the input of block s is there, the blocks behind t are reversed; do what is
// needed to reverse t, t-1, ..., s. The schedules of the class are those that come about so:
//
//   last   s = t: run block s, keeping what its reversal reads, and reverse it
//   save   run block s, keeping its value and what its reversal reads; reverse(s+1..t); reverse s
//   store  for some k in s+1..t: run s..k-1, keeping only the value of k-1, the input of k;
//          reverse(k..t); reverse(s..k-1). The value may stay after reverse(k..t): for the early
//          part of k-1, which then runs at once, and further for the late part, so that it need
//          not be made again. k = t+1 stands for doing only the early part of t.
//   next   only if t can be reversed without its input: reverse t at once; reverse(s..t-1)
//
// A value that is kept stays until its last use ("persistent"); a re-run runs only the ops of the
// block that what it keeps depends on, all before the part for which it is. Where `next` is
// possible nothing else is tried. The ranges that end with the last block are those that run for
// the first time.
//
// For every range the table holds the least cost against memory, for six cases: what of t is
// pending, and whether the input of s is counted elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "regen/base/limit.h"
#include "regen/search/heuristics/chain_costs.h"
#include "regen/search/heuristics/staircase.h"

namespace regen::search {

// One run of a block in a schedule.
struct ChainRun {
  enum Kind : std::uint8_t { kPass, kSave, kLast, kEarly, kReversal };
  std::size_t block = 0;
  Kind kind = kPass;
  bool first = false;       // forward runs: for the first time
  Pending pending = kBoth;  // kLast and kReversal

  bool operator==(const ChainRun&) const = default;
};

struct ChainTableOptions {
  Bytes budget = 0;  // fixed bytes left out
  // Schedules that cost more than this need not be found.
  double most_cost = kImpossible;
  std::size_t max_corners = 0;  // of one range; above it staircases are thinned
};

class ChainTable {
 public:
  // Counts corners as work. The costs must outlive the table.
  ChainTable(std::span<const BlockCosts> blocks, const ChainTableOptions& options, Effort& effort);

  bool complete() const { return complete_; }  // false: `effort` ran out, nothing can be asked
  bool thinned() const { return thinned_; }
  // Of the whole chain.
  const Staircase& costs() const { return cells_[root()]; }
  // The runs of a cheapest schedule with this many bytes, which must be possible.
  std::vector<ChainRun> schedule(Bytes bytes) const;

 private:
  struct Range {
    std::size_t s = 0;
    std::size_t t = 0;
    Pending pending = kBoth;     // of t
    bool input_counted = false;  // of s, by others
  };
  struct Way {
    enum Kind : std::uint8_t { kLast, kSave, kStore, kNext };
    Kind kind = kLast;
    std::size_t k = 0;
    bool early = false;  // kStore: the early part of k-1 runs between the two ranges
    Bytes bytes = 0;
    double cost = 0;
    std::optional<Range> first;
    Bytes first_held = 0;
    std::optional<Range> second;  // nothing is held for it
  };

  std::size_t index(const Range& range) const {
    return ((range.s * blocks_.size() + range.t) * 3 + range.pending) * 2 +
           (range.input_counted ? 1 : 0);
  }
  std::size_t root() const { return index({.s = 0, .t = blocks_.size() - 1}); }
  bool first_run(const Range& range) const { return range.t + 1 == blocks_.size(); }
  // Whether the case can come up.
  bool occurs(const Range& range) const;
  bool must_do_next(const Range& range) const;
  bool needs_input(std::size_t s, std::size_t t, Pending pending) const;
  Bytes value_bytes(const Range& range) const;
  Bytes base(const Range& range, std::size_t block) const;

  Way way_last(const Range& range) const;
  Way way_save(const Range& range) const;
  Way way_next(const Range& range) const;
  struct Sweep {  // forward runs of s..k-1, that of s aside
    Bytes peak = 0;
    double cost = 0;
  };
  std::optional<Way> way_store(const Range& range, std::size_t k, Pending after,
                               const Sweep& sweep) const;
  template <typename Visit>
  void for_each_store(const Range& range, const Visit& visit) const;
  template <typename Visit>
  void for_each_way(const Range& range, const Visit& visit) const;
  template <typename Visit>
  void for_each_range(const Visit& visit);

  // Where a staircase begins and ends, kept apart from it and in two orders: the ways of a range
  // ask for ranges with the same end and for ranges with the same start, one after the other.
  struct Outline {
    Bytes least_bytes = std::numeric_limits<Bytes>::max() / 4;
    double lowest_cost = kImpossible;
  };
  std::size_t index_by_end(const Range& range) const {
    return index({range.t, range.s, range.pending, range.input_counted});
  }
  bool may_improve(const Way& way) const;
  StairSum sum(const Way& way) const;
  void find_needs();
  void find_least_costs();
  double most_cost(const Range& range) const;
  void fill(const Range& range, Effort& effort);
  void unroll(const Range& range, Bytes bytes, std::vector<ChainRun>& runs) const;

  std::span<const BlockCosts> blocks_;
  ChainTableOptions options_;
  std::vector<char> needs_input_;  // by index(), input_counted false
  // Sums over the blocks before each one: at least what their first runs and reversals cost.
  std::vector<double> first_costs_;
  std::vector<double> reversal_costs_;
  std::vector<Staircase> cells_;
  std::vector<Outline> by_start_;
  std::vector<Outline> by_end_;
  StairMinimum minimum_;
  bool complete_ = true;
  bool thinned_ = false;
};

}  // namespace regen::search
