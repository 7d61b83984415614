// The portfolio of `auto` as one table. A row is one question to one planner; rounds follow each
// other as the enumeration does, rows of a round as they stand. How far a row is worth its time is
// an experiment's to say: experiments/ablation.py plans with each row switched off.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"

namespace regen::search {

enum class Round : std::uint8_t {
  kQuick,    // planners that end by themselves, before anything else
  kRescue,   // while no plan fits, or only expensive ones: `above` times the least cost
  kExact,    // exact methods, from the best plan so far
  kResume,   // the same once more with another seed, when local search finds nothing for long
  kOpinion,  // for small graphs, when all else is done
  kRepeat,   // an opinion with ever other seeds, until several in a row find nothing
};

std::string_view to_string(Round round);

struct Row {
  const char* planner;
  Round round;
  double fraction;  // of the effort that is left, at most
  std::size_t most_ops = kAnyOps;
  std::size_t fewest_ops = 0;
  // Instead of most_ops while the best plan is far from the bound, or none fits; 0: the same.
  std::size_t most_ops_if_far = 0;
  // kRescue, kOpinion: only while the best plan costs more than so many least costs, or none fits.
  double above = 0;

  static constexpr std::size_t kAnyOps = std::numeric_limits<std::size_t>::max();
};

std::span<const Row> portfolio_table();

// "str@exact": how a row is named by --ablate and --explain-search.
std::string name_of(const Row& row);

// What else --ablate can switch off.
enum class Part : std::uint8_t {
  kBlocks,         // local search: the start by blocks of the forward pass
  kStart,          // local search: the start from everything kept
  kExactStart,     // local search: the start with an exact repair
  kHints,          // local search: the start from the bound's solution
  kLocalSearch,    // local search: its improvement
  kCoveringBound,  // the bound of plans in the order of the graph
  kOrders,         // another order of first runs
  kVariants,       // a choice among several variants of an op
};

std::string_view to_string(Part part);

// What a search goes without. Names are those of rows ("str@exact"), of planners ("str": all of
// its rows), of rounds ("rescue") and of parts ("covering_bound").
class Ablation {
 public:
  Ablation() = default;
  // Refuses a name that is none of these, with the list.
  static Result<Ablation> parse(std::span<const std::string> names);

  bool without(const Row& row) const;
  bool without(Part part) const;
  bool empty() const { return names_.empty(); }

 private:
  bool names(std::string_view name) const;

  std::vector<std::string> names_;
};

}  // namespace regen::search
