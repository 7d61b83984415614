#include "regen/published/lower_sets/drop_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace regen::published {
namespace {

bool outside(std::span<const std::uint64_t> set, std::size_t node) {
  return (set[node / 64] >> (node % 64) & 1) == 0;
}

}  // namespace

DropBound::DropBound(std::vector<Bytes> bytes, std::span<const double> costs,
                     std::span<const char> droppable)
    : bytes_(std::move(bytes)) {
  for (std::uint32_t node = 0; node < bytes_.size(); ++node) {
    whole_costs_ = whole_costs_ && costs[node] == std::floor(costs[node]);
    if (droppable[node]) drops_.push_back({node, bytes_[node], costs[node]});
  }
  std::ranges::stable_sort(drops_, [](const Drop& a, const Drop& b) {
    return a.cost * static_cast<double>(b.bytes) < b.cost * static_cast<double>(a.bytes);
  });
}

void DropBound::prepare(std::span<const std::uint64_t> set) {
  outside_bytes_ = 0;
  outside_costs_ = 0;
  outside_.clear();
  for (std::size_t node = 0; node < bytes_.size(); ++node) {
    if (outside(set, node)) outside_bytes_ += bytes_[node];
  }
  for (const Drop& drop : drops_) {
    if (!outside(set, drop.node)) continue;
    outside_costs_ += drop.cost;
    if (drop.bytes > 0) outside_.push_back(drop);
  }
}

double DropBound::cost_of(Bytes excess) const {
  double cost = 0;
  for (const Drop& drop : outside_) {
    if (excess <= 0) break;
    const double part =
        std::min(1.0, static_cast<double>(excess) / static_cast<double>(drop.bytes));
    cost += part * drop.cost;
    excess -= drop.bytes;
  }
  if (excess > 0) return std::numeric_limits<double>::infinity();
  // Less a little, so that rounding never makes it too high.
  cost *= 1 - 1e-9;
  return whole_costs_ ? std::ceil(cost) : cost;
}

}  // namespace regen::published
