#include "regen/planners/binomial.h"

#include <algorithm>

namespace regen {

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

void BinomialTable::fill(std::size_t slots) {
  const std::size_t m = costs_.size();
  const std::vector<double>& behind = layers_[slots - 1].cost[kReversedAndNext];
  Layer layer = empty_layer();
  for (std::size_t length = 1; length <= m; ++length) {
    for (std::size_t s = 0; s + length <= m; ++s) {
      const std::size_t e = s + length;
      for (const Goal goal : {kReversed, kReversedAndNext}) {
        double best = goal == kReversed ? layers_[0].cost[kReversed][cell(s, e)]
                                        : layer.cost[kReversed][cell(s, e)] + costs_[s];
        std::size_t at = 0;
        for (std::size_t k = s + 1; k <= e; ++k) {
          const double value = run(s, k) + behind[cell(k, e)] + layer.cost[goal][cell(s, k - 1)];
          if (value < best) {
            best = value;
            at = k;
          }
        }
        layer.cost[goal][cell(s, e)] = best;
        layer.split[goal][cell(s, e)] = static_cast<std::uint16_t>(at);
      }
    }
  }
  layers_.push_back(std::move(layer));
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

}  // namespace regen
