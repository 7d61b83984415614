// The upper edge of a packing that grows bottom up: stretches of sections, each with its height.
//
//     2 |   b b                Three stretches: heights 1, 2, 0 over sections [0, 1), [1, 3)
//     1 | a b b                and [3, 5). The last one is the lowest; with nothing to put
//     0 | a b b . .            into it, it is lifted to 2 and joins its neighbour.
//       +-----------> section
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace regen {

class PackSurface {
 public:
  struct Stretch {
    std::int32_t first = 0;
    std::int32_t last = 0;
    std::int64_t height = 0;
  };

  explicit PackSurface(std::int32_t sections);

  // Of those that are equally low, the first.
  Stretch lowest() const;
  // Raises a part [first, last) of the lowest stretch.
  void cover(std::int32_t first, std::int32_t last, std::int64_t height);
  // Raises the lowest stretch to its lower neighbour. There must be one.
  void lift();

 private:
  struct Link {  // of a stretch, kept under its first section
    std::int32_t before = -1;
    std::int32_t last = 0;  // also where the next stretch begins
    std::int64_t height = 0;
  };

  Link& link(std::int32_t first) { return links_[static_cast<std::size_t>(first)]; }
  const Link& link(std::int32_t first) const { return links_[static_cast<std::size_t>(first)]; }
  bool exists(std::int32_t first) const { return first >= 0 && first < sections_; }
  void split(std::int32_t first, std::int32_t middle);
  void raise(std::int32_t first, std::int64_t height);
  void join(std::int32_t first);

  std::int32_t sections_;
  std::vector<Link> links_;
  std::set<std::pair<std::int64_t, std::int32_t>> by_height_;  // height, first section
};

}  // namespace regen
