// The way from a schedule to the columns of the relaxation, and back.
#include <algorithm>

#include "regen/published/monet/monet_relaxation.h"
#include "regen/published/monet/monet_stage_rating.h"

namespace regen::published {
namespace {

// Within the budget the price does not matter.
constexpr double kAnyPrice = 1e6;

template <typename Choice>
std::size_t position_of(const std::vector<Choice>& choices, std::uint32_t number) {
  const auto found = std::ranges::find(choices, number, &Choice::number);
  return static_cast<std::size_t>(found - choices.begin());
}

}  // namespace

MonetStorage MonetRelaxation::storage_of(const std::vector<double>& values,
                                         double threshold) const {
  MonetStorage storage(model_.num_stages(), nodes_);
  for (std::size_t t = 1; t <= model_.num_stages(); ++t) {
    for (std::size_t i = 0; i < nodes_; ++i) {
      const int column = stored_column(t, i);
      if (column < 0) continue;
      storage.store(t, i, values[static_cast<std::size_t>(column)] > threshold);
    }
  }
  return storage;
}

std::vector<double> MonetRelaxation::values_of(const MonetStorage& storage) const {
  std::vector<double> values(static_cast<std::size_t>(program_.num_columns()), 0.0);
  const auto set = [&](int column) {
    if (column >= 0) values[static_cast<std::size_t>(column)] = 1;
  };
  MonetStageRater rater(model_);
  for (std::size_t t = 0; t < model_.num_stages(); ++t) {
    const MonetStage& stage = model_.stages[t];
    const MonetDecisions chosen = rater.decide(t, storage.row(t), storage.row(t + 1), kAnyPrice);
    for_each_bit(storage.row(t + 1), [&](std::size_t i) { set(stored_column(t + 1, i)); });
    for (std::uint32_t i : chosen.made) set(recomputed(t, i));
    for (std::uint32_t i : chosen.in_place) set(in_place(t, i));
    for (const auto& conv : chosen.convs) {
      const MonetForward& node = model_.nodes[conv.node];
      const auto& algorithms = t == 0 ? node.first_algorithms : node.again_algorithms;
      set(algorithms_[t * nodes_ + conv.node][position_of(algorithms, conv.algorithm)]);
    }
    const std::size_t way = position_of(stage.implementations, chosen.implementation);
    set(ways_[t][way]);
    for (const auto& [node, used] : used_[t]) {
      const auto& args = stage.implementations[way].args;
      const bool read = std::ranges::find(args, node) != args.end();
      if (read && !storage.stored(t + 1, node)) set(used);
    }
    if (!stage.algorithms.empty()) {
      set(backward_algorithms_[t][position_of(stage.algorithms, chosen.backward_algorithm)]);
    }
  }
  return values;
}

}  // namespace regen::published
