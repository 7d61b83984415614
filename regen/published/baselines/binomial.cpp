#include "regen/published/baselines/binomial.h"

#include <algorithm>

namespace regen::published {

BinomialTable::BinomialTable(std::vector<double> costs, std::size_t max_slots)
    : costs_(std::move(costs)), prefix_(costs_.size() + 1, 0.0) {
  for (std::size_t i = 0; i < costs_.size(); ++i) prefix_[i + 1] = prefix_[i] + costs_[i];
  fill_without_slots();
  for (std::size_t slots = 1; slots <= std::min(max_slots, costs_.size()); ++slots) fill(slots);
}

BinomialTable::Layer BinomialTable::empty_layer() const {
  const std::size_t cells = (costs_.size() + 1) * (costs_.size() + 1);
  Layer layer;
  for (auto& cost : layer.cost) cost.assign(cells, 0.0);
  for (auto& split : layer.split) split.assign(cells, 0);
  return layer;
}

void BinomialTable::fill_without_slots() {
  const std::size_t m = costs_.size();
  Layer layer = empty_layer();
  for (std::size_t s = 0; s <= m; ++s) {
    double earlier = 0;  // of reversing s+1 .. e-1
    for (std::size_t e = s + 1; e <= m; ++e) {
      layer.cost[kReversed][cell(s, e)] = run(s, e) + earlier;
      layer.cost[kReversedAndNext][cell(s, e)] = run(s, e) + earlier + costs_[s];
      earlier += run(s, std::min(e + 1, m));
    }
  }
  layers_.push_back(std::move(layer));
}

// The loop over k is all of the work: what it reads lies side by side, so what is behind k is
// copied with its columns as rows.
void BinomialTable::fill(std::size_t slots) {
  const std::size_t m = costs_.size();
  const std::vector<double> behind = transposed(layers_[slots - 1].cost[kReversedAndNext]);
  Layer layer = empty_layer();
  for (std::size_t length = 1; length <= m; ++length) {
    for (std::size_t s = 0; s + length <= m; ++s) {
      const std::size_t e = s + length;
      const double without = layers_[0].cost[kReversed][cell(s, e)];
      const Split reversed = best_split(behind, layer.cost[kReversed], s, e, without);
      layer.put(kReversed, cell(s, e), reversed);
      layer.put(kReversedAndNext, cell(s, e),
                best_split(behind, layer.cost[kReversedAndNext], s, e, reversed.cost + costs_[s]));
    }
  }
  layers_.push_back(std::move(layer));
}

std::vector<double> BinomialTable::transposed(const std::vector<double>& table) const {
  std::vector<double> result(table.size());
  for (std::size_t s = 0; s <= costs_.size(); ++s) {
    for (std::size_t e = s; e <= costs_.size(); ++e) result[cell(e, s)] = table[cell(s, e)];
  }
  return result;
}

BinomialTable::Split BinomialTable::best_split(const std::vector<double>& behind,
                                               const std::vector<double>& before, std::size_t s,
                                               std::size_t e, double without) const {
  const double* const behind_row = &behind[cell(e, 0)];
  const double* const before_row = &before[cell(s, 0)];
  const auto cost = [&](std::size_t k) { return run(s, k) + behind_row[k] + before_row[k - 1]; };
  // Each lane has a least cost of its own, so that none waits for another.
  std::array<double, 8> least;
  least.fill(without);
  std::size_t k = s + 1;
  for (; k + least.size() <= e + 1; k += least.size()) {
    for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], cost(k + i));
  }
  for (; k <= e; ++k) least[0] = std::min(least[0], cost(k));
  const double best = std::ranges::min(least);
  if (best >= without) return {.cost = without};
  k = s + 1;
  while (cost(k) != best) ++k;
  return {.cost = best, .at = static_cast<std::uint16_t>(k)};
}

double BinomialTable::extra_cost(std::size_t slots) const {
  const Layer& layer = layers_[std::min(slots, max_slots())];
  return layer.cost[kReversed][cell(0, costs_.size())] - prefix_.back();
}

std::vector<StoredBlock> BinomialTable::schedule(std::size_t slots) const {
  struct Range {
    std::size_t s, e, slots, from;
    Goal goal;
  };
  const std::size_t m = costs_.size();
  std::vector<StoredBlock> stored;
  std::vector<Range> pending{{0, m, std::min(slots, max_slots()), m, kReversed}};
  while (!pending.empty()) {
    Range range = pending.back();
    pending.pop_back();
    if (range.s >= range.e || range.slots == 0) continue;
    std::size_t k = layers_[range.slots].split[range.goal][cell(range.s, range.e)];
    if (k == 0 && range.goal == kReversedAndNext) {  // the next value is run once more at the end
      range.goal = kReversed;
      k = layers_[range.slots].split[kReversed][cell(range.s, range.e)];
    }
    if (k == 0) continue;
    stored.push_back({.block = k - 1, .from = range.from});
    // What lies before k is reversed later, in a sweep of its own that begins with k - 1.
    if (k >= 2) pending.push_back({range.s, k - 1, range.slots, k - 2, range.goal});
    pending.push_back({k, range.e, range.slots - 1, range.from, kReversedAndNext});
  }
  return stored;
}

}  // namespace regen::published
