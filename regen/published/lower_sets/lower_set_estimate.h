// A quick guess at good chains of lower sets. The memory of a block is estimated from sums over
// sets instead of being simulated, which takes a few operations for each pair of sets:
//
//   cost   of all nodes of the block that are not on the boundary
//   held   the boundary's values that are read after the forward pass, and those of the boundary
//          below that a re-run in this block reads
//   peak   all values of the block that are read after the forward pass, and the most that the
//          backward ops at its nodes keep alive
//
// Nodes stand in the order of ops, and a set is taken for the first so many of them. The judge then
// says what the chain really needs, mostly within a few percent of the estimate.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "regen/published/lower_sets/drop_bound.h"
#include "regen/published/lower_sets/lower_set_blocks.h"

namespace regen::published {

struct EstimateOptions {
  Bytes budget = 0;           // without the fixed bytes
  std::size_t buckets = 256;  // of held bytes: of the states in one, the cheapest is followed
  double cost_below = std::numeric_limits<double>::infinity();  // of re-runs; others do not count
};

class LowerSetEstimate {
 public:
  // Both must outlive it.
  LowerSetEstimate(const LowerSetBlocks& blocks, const LowerSetFamily& family);

  // The cheapest chain that the estimate finds.
  std::optional<std::vector<std::uint32_t>> cheapest(const EstimateOptions& options,
                                                     Effort& effort) const;

 private:
  struct Kept {
    double cost = 0;
    Bytes bytes = 0;
  };
  struct State {
    double cost = 0;
    Bytes held = 0;
    std::uint32_t set = 0;
    std::uint32_t parent = 0;
  };

  void find_later();
  void find_backward();
  Kept kept(std::uint32_t from, std::uint32_t to) const;
  class Search;

  const LowerSetBlocks& blocks_;
  const LowerSetNodes& nodes_;
  const LowerSetFamily& family_;
  // By node: may it be dropped, what of it is read after the forward pass; and, by the number of
  // nodes below it, the most that ops after the forward pass keep alive while it is reversed.
  std::vector<char> droppable_;
  std::vector<Bytes> later_;
  std::vector<Bytes> backward_;
  // By set: its nodes, what of them is read later, the cost of running them again.
  std::vector<std::uint32_t> size_;
  std::vector<Bytes> later_of_;
  std::vector<double> cost_;
};

}  // namespace regen::published
