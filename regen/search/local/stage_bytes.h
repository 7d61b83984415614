// Bytes in use at each op while values are held or dropped over ranges of ops. Gives the maximum
// over a range and its position in time logarithmic in the number of ops.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "regen/base/units.h"

namespace regen::search {

class StageBytes {
 public:
  explicit StageBytes(std::span<const Bytes> bytes);

  // For the ops from `first` to before `last`.
  void add(std::size_t first, std::size_t last, Bytes bytes);
  Bytes most(std::size_t first, std::size_t last) const;
  // The most of all, and the first op where it is.
  std::pair<Bytes, std::uint32_t> peak() const;

 private:
  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t first, std::size_t last,
           Bytes bytes);
  Bytes most(std::size_t node, std::size_t low, std::size_t high, std::size_t first,
             std::size_t last) const;

  std::size_t leaves_ = 1;
  std::vector<Bytes> most_;   // of each node's ops, without what was added to whole nodes above
  std::vector<Bytes> added_;  // to all ops of a node
};

}  // namespace regen::search
