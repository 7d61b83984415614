#include "regen/plan/pack/pack_tree.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace regen {
namespace {

constexpr std::uint32_t kLeafSize = 8;

}  // namespace

PackTree::PackTree(std::span<const PackItem> items)
    : items_(items), points_(items.size()), leaf_(items.size()) {
  std::iota(points_.begin(), points_.end(), 0U);
  if (!items.empty()) build(0, static_cast<std::uint32_t>(items.size()), kNone);
}

void PackTree::reset(std::vector<double> keys) {
  keys_ = std::move(keys);
  removed_.assign(items_.size(), 0);
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) refresh(*node);
}

void PackTree::remove(std::uint32_t item) {
  removed_[item] = 1;
  for (std::uint32_t n = leaf_[item]; n != kNone; n = nodes_[n].parent) {
    if (nodes_[n].best != item) break;
    refresh(nodes_[n]);
  }
}

std::uint32_t PackTree::best_within(std::int32_t first, std::int32_t last) {
  std::uint32_t best = kNone;
  if (!nodes_.empty()) look(nodes_[0], first, last, best);
  return best;
}

std::uint32_t PackTree::build(std::uint32_t begin, std::uint32_t end, std::uint32_t parent) {
  const auto self = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back(bounds(begin, end, parent));
  if (end - begin <= kLeafSize) {
    for (std::uint32_t p = begin; p < end; ++p) leaf_[points_[p]] = self;
    return self;
  }
  const Node& node = nodes_[self];
  const bool by_first = node.first_high - node.first_low >= node.last_high - node.last_low;
  const auto coordinate = [&](std::uint32_t i) {
    return by_first ? items_[i].first : items_[i].last;
  };
  const std::uint32_t middle = begin + (end - begin) / 2;
  std::nth_element(
      points_.begin() + begin, points_.begin() + middle, points_.begin() + end,
      [&](auto a, auto b) { return std::pair(coordinate(a), a) < std::pair(coordinate(b), b); });
  const std::uint32_t left = build(begin, middle, self);
  const std::uint32_t right = build(middle, end, self);
  nodes_[self].left = left;
  nodes_[self].right = right;
  return self;
}

PackTree::Node PackTree::bounds(std::uint32_t begin, std::uint32_t end,
                                std::uint32_t parent) const {
  constexpr std::int32_t kHighest = std::numeric_limits<std::int32_t>::max();
  Node node{.first_low = kHighest,
            .first_high = 0,
            .last_low = kHighest,
            .last_high = 0,
            .begin = begin,
            .end = end,
            .parent = parent};
  for (std::uint32_t p = begin; p < end; ++p) {
    const PackItem& item = items_[points_[p]];
    node.first_low = std::min(node.first_low, item.first);
    node.first_high = std::max(node.first_high, item.first);
    node.last_low = std::min(node.last_low, item.last);
    node.last_high = std::max(node.last_high, item.last);
  }
  return node;
}

void PackTree::refresh(Node& node) const {
  node.best = kNone;
  if (node.left != kNone) {
    node.best = better(nodes_[node.left].best, nodes_[node.right].best);
    return;
  }
  for (std::uint32_t p = node.begin; p < node.end; ++p) {
    if (!removed_[points_[p]]) node.best = better(node.best, points_[p]);
  }
}

std::uint32_t PackTree::better(std::uint32_t a, std::uint32_t b) const {
  if (a == kNone) return b;
  if (b == kNone) return a;
  if (keys_[a] != keys_[b]) return keys_[a] > keys_[b] ? a : b;
  return std::min(a, b);
}

void PackTree::look(const Node& node, std::int32_t first, std::int32_t last, std::uint32_t& best) {
  ++visits_;
  if (node.best == kNone || node.first_high < first || node.last_low > last) return;
  if (better(node.best, best) == best) return;
  if (node.first_low >= first && node.last_high <= last) {
    best = node.best;
    return;
  }
  if (node.left != kNone) {
    const Node* nearer = &nodes_[node.left];
    const Node* other = &nodes_[node.right];
    if (better(nearer->best, other->best) == other->best) std::swap(nearer, other);
    look(*nearer, first, last, best);
    look(*other, first, last, best);
    return;
  }
  for (std::uint32_t p = node.begin; p < node.end; ++p) {
    const std::uint32_t i = points_[p];
    const bool within = items_[i].first >= first && items_[i].last <= last;
    if (within && !removed_[i]) best = better(best, i);
  }
}

}  // namespace regen
