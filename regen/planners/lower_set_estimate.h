// A quick guess at good chains of lower sets. The memory of a block is estimated from prefix sums
// instead of being simulated, which takes a few operations for each pair of sets; the judge then
// says what the chain really needs. Which budget to ask the estimate for is therefore the caller's
// to try out.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "regen/planners/drop_bound.h"
#include "regen/planners/lower_set_blocks.h"

namespace regen {

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
  std::vector<char> droppable_;        // by node
  std::vector<Bytes> later_;           // by node: bytes read after the forward pass
  std::vector<Bytes> later_below_;     // of the first nodes, by their number
  std::vector<Bytes> backward_;        // by node: the most that is live while its part is reversed,
                                       // and all of later_below_ with it
  std::vector<Bytes> later_of_;
  std::vector<std::uint32_t> size_;    // by set
  std::vector<double> cost_;           // by set: of running all its nodes again
};

}  // namespace regen
