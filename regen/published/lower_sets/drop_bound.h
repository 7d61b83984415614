// The least cost of being rid of some bytes, by a fractional knapsack: a bound for searches that
// have to make again what they do not keep.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/base/units.h"

namespace regen::published {

class DropBound {
 public:
  // By node: the bytes that are there unless the node is dropped, the cost of dropping it, and
  // whether that is possible.
  DropBound(std::vector<Bytes> bytes, std::span<const double> costs,
            std::span<const char> droppable);

  // From now on only nodes outside `set` count.
  void prepare(std::span<const std::uint64_t> set);
  // All bytes, and all costs of droppable nodes, outside the set.
  Bytes bytes() const { return outside_bytes_; }
  double costs() const { return outside_costs_; }
  // What it costs at least to drop `excess` bytes; infinite if there are not so many.
  double cost_of(Bytes excess) const;

 private:
  struct Drop {
    std::uint32_t node = 0;
    Bytes bytes = 0;
    double cost = 0;
  };

  std::vector<Bytes> bytes_;
  std::vector<Drop> drops_;  // the cheapest for their bytes first
  bool whole_costs_ = true;
  Bytes outside_bytes_ = 0;
  double outside_costs_ = 0;
  std::vector<Drop> outside_;
};

}  // namespace regen::published
