#include "regen/graph/format_order.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace regen {
namespace {

using Edge = std::pair<std::uint32_t, std::uint32_t>;

// Every node left over by the sort has a predecessor that is left over too, so walking back
// must come round.
std::vector<std::uint32_t> cycle_among(const std::vector<std::uint32_t>& missing,
                                       std::span<const Edge> edges) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::vector<std::uint32_t> before(missing.size(), kNone);
  std::uint32_t start = kNone;
  for (const auto& [from, to] : edges) {
    if (missing[from] > 0 && missing[to] > 0 && before[to] == kNone) before[to] = from;
  }
  for (std::uint32_t i = 0; i < missing.size() && start == kNone; ++i) {
    if (missing[i] > 0) start = i;
  }
  std::vector<bool> seen(missing.size(), false);
  std::uint32_t node = start;
  while (!seen[node]) {
    seen[node] = true;
    node = before[node];
  }
  std::vector<std::uint32_t> cycle{node};
  for (std::uint32_t i = before[node]; i != node; i = before[i]) cycle.push_back(i);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

}  // namespace

TopologicalOrder topological_order(std::span<const std::uint64_t> priorities,
                                   std::span<const Edge> edges) {
  const std::size_t size = priorities.size();
  std::vector<std::uint32_t> starts(size + 1, 0);
  std::vector<std::uint32_t> missing(size, 0);  // predecessors not yet in the order
  for (const auto& [from, to] : edges) {
    ++starts[from + 1];
    ++missing[to];
  }
  for (std::size_t i = 0; i < size; ++i) starts[i + 1] += starts[i];
  std::vector<std::uint32_t> next(starts.begin(), starts.end() - 1);
  std::vector<std::uint32_t> successors(edges.size());
  for (const auto& [from, to] : edges) successors[next[from]++] = to;

  using Entry = std::pair<std::uint64_t, std::uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (missing[i] == 0) ready.emplace(priorities[i], i);
  }
  TopologicalOrder result;
  result.order.reserve(size);
  while (!ready.empty()) {
    const std::uint32_t node = ready.top().second;
    ready.pop();
    result.order.push_back(node);
    for (std::uint32_t i = starts[node]; i < starts[node + 1]; ++i) {
      if (--missing[successors[i]] == 0) ready.emplace(priorities[successors[i]], successors[i]);
    }
  }
  if (result.order.size() < size) result.cycle = cycle_among(missing, edges);
  return result;
}

}  // namespace regen
