#include "regen/report/category.h"

#include <array>

namespace regen::report {
namespace {

// What the ops do with state.
struct StateUse {
  IdVector<TensorId, bool> updates;    // an update reads or changes it
  IdVector<TensorId, bool> gradients;  // the backward pass writes it
};

StateUse uses_of_state(const Graph& graph) {
  StateUse use{IdVector<TensorId, bool>(graph.num_tensors(), false),
               IdVector<TensorId, bool>(graph.num_tensors(), false)};
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::kBackward) {
      for (const TensorId t : graph.mutates(op)) use.gradients[t] = true;
    }
    if (graph.phase(op) != Phase::kUpdate) continue;
    for (const TensorId t : graph.inputs(op)) use.updates[t] = true;
    for (const TensorId t : graph.mutates(op)) use.updates[t] = true;
  }
  return use;
}

Category made_in(Phase phase) {
  if (phase == Phase::kUpdate) return Category::kOptimizer;
  return phase == Phase::kBackward ? Category::kGradient : Category::kActivation;
}

Category category_of(const Graph& graph, TensorId t, const StateUse& use) {
  switch (graph.kind(t)) {
    case TensorKind::kInput:
      return Category::kInput;
    case TensorKind::kParam:
      return Category::kParameter;
    case TensorKind::kState:
      if (use.gradients[t]) return Category::kGradient;
      return use.updates[t] ? Category::kOptimizer : Category::kBuffer;
    case TensorKind::kGradient:
      return Category::kGradient;
    case TensorKind::kActivation:
    case TensorKind::kOutput:
      return made_in(graph.phase(graph.producer(t)));
  }
  return Category::kActivation;
}

}  // namespace

std::string_view to_string(Category category) {
  constexpr std::array<std::string_view, kNumCategories> kNames{
      "input", "parameter", "optimizer", "buffer", "gradient", "activation"};
  return kNames[static_cast<std::size_t>(category)];
}

IdVector<TensorId, Category> categories(const Graph& graph) {
  const StateUse use = uses_of_state(graph);
  IdVector<TensorId, Category> found(graph.num_tensors(), Category::kActivation);
  for (const TensorId t : graph.tensors()) found[t] = category_of(graph, t, use);
  return found;
}

}  // namespace regen::report
