// Collects states with a value (more is better) and bytes (fewer are better), and gives back those
// that no other one beats in both.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "regen/base/units.h"

namespace regen::published {

struct ParetoLabel {
  double value = 0;
  Bytes bytes = 0;
  std::uint32_t parent = 0;  // whatever the caller has to find again
};

class ParetoBuilder {
 public:
  // Values will be sums of some of `items`. When these are whole numbers with a small sum, a table
  // with a place for each value collects the states; otherwise they are sorted.
  explicit ParetoBuilder(std::span<const double> items) {
    double sum = 0;
    bool whole = true;
    for (double item : items) {
      sum += item;
      whole = whole && item >= 0 && item == std::floor(item);
    }
    if (whole && sum <= kMaxTable) table_.assign(static_cast<std::size_t>(sum) + 1, {});
  }

  void add(double value, Bytes bytes, std::uint32_t parent) {
    if (table_.empty()) {
      loose_.push_back({value, bytes, parent});
      return;
    }
    const auto place = static_cast<std::size_t>(value);
    Slot& slot = table_[place];
    if (bytes >= slot.bytes) return;
    slot = {bytes, parent};
    if (place < low_) low_ = place;
    if (place + 1 > high_) high_ = place + 1;
  }

  // Appends the front to `out`, bytes and values ascending, and forgets all states. With
  // `leanest_only` just the first of it.
  void take(std::vector<ParetoLabel>& out, bool leanest_only);

 private:
  static constexpr double kMaxTable = 1 << 16;
  struct Slot {
    Bytes bytes = std::numeric_limits<Bytes>::max();
    std::uint32_t parent = 0;
  };

  std::vector<Slot> table_;  // by value; used between low_ and high_
  std::size_t low_ = SIZE_MAX;
  std::size_t high_ = 0;
  std::vector<ParetoLabel> loose_;
};

}  // namespace regen::published
