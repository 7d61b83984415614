// Intervals that may be dropped, in the order of their scores, queried by an op that they cross.
// An interval is stored in the few nodes of a binary tree over the ops that make up its range, so
// that a query visits one node on each level.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace regen::search {

class EvictionQueue {
 public:
  struct Entry {
    double score = 0;
    std::uint32_t interval = 0;

    auto operator<=>(const Entry&) const = default;
  };

  EvictionQueue(std::size_t stages, std::size_t intervals);

  // An interval may be added again, with another score, only after it was taken.
  void add(const Entry& entry, std::size_t first, std::size_t last);
  // The lowest score of all intervals with the stage in [first, last).
  std::optional<Entry> take(std::size_t stage);

 private:
  void add(std::size_t node, std::size_t low, std::size_t high, std::size_t first, std::size_t last,
           const Entry& entry);
  const Entry* lowest(std::size_t node);

  std::size_t leaves_ = 1;
  std::vector<std::vector<Entry>> nodes_;  // heaps, the lowest first
  std::vector<double> score_;              // of each interval that is in the queue, else negative
};

}  // namespace regen::search
