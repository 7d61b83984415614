// Heights over the sections of a part: the highest of a range, and raising a range to a
// height that none of it exceeds, both in logarithmic time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace regen {

class Skyline {
 public:
  explicit Skyline(std::int32_t sections)
      : size_(std::bit_ceil(static_cast<std::size_t>(sections))) {
    clear();
  }

  void clear() { nodes_.assign(2 * size_, {}); }

  std::int64_t highest(std::int32_t first, std::int32_t last) const {
    std::size_t left = static_cast<std::size_t>(first) + size_;
    std::size_t right = static_cast<std::size_t>(last) + size_ - 1;
    std::int64_t height = std::max(nodes_[left].highest, nodes_[right].highest);
    // Above the two ends: what was raised as a whole reaches down, and whole
    // subtrees between them count with their highest.
    for (; left / 2 != right / 2; left /= 2, right /= 2) {
      if (left % 2 == 0) height = std::max(height, nodes_[left + 1].highest);
      if (right % 2 == 1) height = std::max(height, nodes_[right - 1].highest);
      height = std::max({height, nodes_[left / 2].floor, nodes_[right / 2].floor});
    }
    for (left /= 2; left > 0; left /= 2) height = std::max(height, nodes_[left].floor);
    return height;
  }

  void raise(std::int32_t first, std::int32_t last, std::int64_t height) {
    std::size_t left = static_cast<std::size_t>(first) + size_;
    std::size_t right = static_cast<std::size_t>(last) + size_ - 1;
    cover(left, height);
    if (right != left) cover(right, height);
    for (; left / 2 != right / 2; left /= 2, right /= 2) {
      if (left % 2 == 0) cover(left + 1, height);
      if (right % 2 == 1) cover(right - 1, height);
      lift(left / 2, height);
      lift(right / 2, height);
    }
    for (left /= 2; left > 0; left /= 2) lift(left, height);
  }

 private:
  struct Node {
    std::int64_t highest = 0;  // of the sections below it
    std::int64_t floor = 0;    // all sections below it are at least this high
  };

  void cover(std::size_t node, std::int64_t height) {
    nodes_[node].floor = height;
    nodes_[node].highest = height;
  }
  void lift(std::size_t node, std::int64_t height) {
    nodes_[node].highest = std::max(nodes_[node].highest, height);
  }

  std::size_t size_;  // leaves: a power of two, so that every level is whole
  std::vector<Node> nodes_;
};

}  // namespace regen
