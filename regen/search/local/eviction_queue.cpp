#include "regen/search/local/eviction_queue.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace regen::search {
namespace {

constexpr double kTaken = -1;

}  // namespace

EvictionQueue::EvictionQueue(std::size_t stages, std::size_t intervals)
    : leaves_(std::bit_ceil(std::max<std::size_t>(stages, 1))),
      nodes_(2 * leaves_),
      score_(intervals, kTaken) {}

void EvictionQueue::add(const Entry& entry, std::size_t first, std::size_t last) {
  score_[entry.interval] = entry.score;
  if (first < last) add(1, 0, leaves_, first, last, entry);
}

void EvictionQueue::add(std::size_t node, std::size_t low, std::size_t high, std::size_t first,
                        std::size_t last, const Entry& entry) {
  if (last <= low || high <= first) return;
  if (first <= low && high <= last) {
    nodes_[node].push_back(entry);
    std::ranges::push_heap(nodes_[node], std::greater());
    return;
  }
  const std::size_t middle = (low + high) / 2;
  add(2 * node, low, middle, first, last, entry);
  add(2 * node + 1, middle, high, first, last, entry);
}

// An entry that was taken through another node is discarded when it comes up.
const EvictionQueue::Entry* EvictionQueue::lowest(std::size_t node) {
  std::vector<Entry>& heap = nodes_[node];
  while (!heap.empty() && score_[heap.front().interval] != heap.front().score) {
    std::ranges::pop_heap(heap, std::greater());
    heap.pop_back();
  }
  return heap.empty() ? nullptr : &heap.front();
}

std::optional<EvictionQueue::Entry> EvictionQueue::take(std::size_t stage) {
  const Entry* best = nullptr;
  for (std::size_t node = leaves_ + stage; node > 0; node /= 2) {
    const Entry* entry = lowest(node);
    if (entry != nullptr && (best == nullptr || *entry < *best)) best = entry;
  }
  if (best == nullptr) return std::nullopt;
  score_[best->interval] = kTaken;
  return *best;
}

}  // namespace regen::search
