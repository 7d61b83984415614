// Finds, among items that are not placed yet, the most wanted one that lives within a range
// of sections.
//
// An item is the point (first, last); those within [a, b) have first >= a and last <= b, a
// corner of the plane. The tree halves the points again and again, along whichever of the two
// spreads more, and every node knows its bounds and its most wanted point, so that a query
// looks into few nodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regen/plan/pack/pack_problem.h"

namespace regen {

class PackTree {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  // `items` must outlive the tree.
  explicit PackTree(std::span<const PackItem> items);

  // All items are there again; larger keys are more wanted, then lower indices.
  void reset(std::vector<double> keys);
  void remove(std::uint32_t item);
  // Or kNone when no item is within.
  std::uint32_t best_within(std::int32_t first, std::int32_t last);

  // Nodes looked into by all queries so far.
  std::int64_t visits() const { return visits_; }

 private:
  struct Node {
    std::int32_t first_low, first_high;  // bounds of the points below
    std::int32_t last_low, last_high;
    std::uint32_t begin, end;  // of those points, in points_
    std::uint32_t parent;
    std::uint32_t left = kNone;  // both kNone in a leaf
    std::uint32_t right = kNone;
    std::uint32_t best = kNone;  // most wanted point below that was not removed
  };

  std::uint32_t build(std::uint32_t begin, std::uint32_t end, std::uint32_t parent);
  Node bounds(std::uint32_t begin, std::uint32_t end, std::uint32_t parent) const;
  void refresh(Node& node) const;
  std::uint32_t better(std::uint32_t a, std::uint32_t b) const;
  void look(const Node& node, std::int32_t first, std::int32_t last, std::uint32_t& best);

  std::span<const PackItem> items_;
  std::vector<std::uint32_t> points_;
  std::vector<Node> nodes_;          // parents before children
  std::vector<std::uint32_t> leaf_;  // of each item
  std::vector<double> keys_;
  std::vector<char> removed_;
  std::int64_t visits_ = 0;
};

}  // namespace regen
