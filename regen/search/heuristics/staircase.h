// The least cost as a function of memory: a falling staircase, kept as its corners. Sums and
// minima of staircases are staircases, so that a dynamic program over them is exact in bytes
// without a table over all sizes.
//
//   cost  |---.            corners (3, 9), (5, 4), (9, 1): below 3 bytes nothing is possible,
//         |   '-----.      from 5 bytes on a cost of 4
//         |         '----
//         +--3--5---9----  bytes
#pragma once

#include <limits>
#include <vector>

#include "regen/base/units.h"

namespace regen::search {

struct Corner {
  Bytes bytes = 0;
  double cost = 0;

  bool operator==(const Corner&) const = default;
};

// Bytes ascend, costs fall.
using Staircase = std::vector<Corner>;

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// The least cost with this many bytes.
double cost_at(const Staircase& stairs, Bytes bytes);

// One way to do something with at least `bytes` and at `cost`, of which parts may be done in
// several ways: `first` while `first_held` bytes are taken, `second` while `second_held` are.
struct StairSum {
  Bytes bytes = 0;
  double cost = 0;
  const Staircase* first = nullptr;  // may be absent
  Bytes first_held = 0;
  const Staircase* second = nullptr;
  Bytes second_held = 0;
};

double cost_at(const StairSum& sum, Bytes bytes);
// From how many bytes on it is possible; more than any budget if never.
Bytes least_bytes(const StairSum& sum);

// Collects the best of many ways up to `budget` bytes.
class StairMinimum {
 public:
  // Costs above `most` are of no interest.
  void start(Bytes budget, double most) { budget_ = budget, most_ = most, best_.clear(); }
  // Whether a way that is possible from `bytes` on and never costs less than `lowest` can be of
  // interest: a look at two numbers saves one at two staircases.
  bool may_improve(Bytes bytes, double lowest) const {
    return bytes <= budget_ && lowest <= most_ && lowest < cost_at(best_, bytes);
  }
  // Returns the number of corners looked at.
  std::size_t add(const StairSum& sum);
  const Staircase& best() const { return best_; }

 private:
  // Into `added_`, the corners of the sum that lie below `best_`, between `from` and `until`.
  std::size_t list_improvements(const StairSum& sum, Bytes from, Bytes until);
  void merge();

  Bytes budget_ = 0;
  double most_ = kImpossible;
  Staircase best_;
  Staircase added_;
  Staircase merged_;
};

// Leaves at most `max_corners`, the lowest and the last among them, so that the costs of what is
// left are reached and those between need more bytes than they must.
void thin(Staircase& stairs, std::size_t max_corners);

}  // namespace regen::search
