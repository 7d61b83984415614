#include "regen/report/category.h"

#include <array>

namespace regen::report {
namespace {

// State that some update reads or changes.
IdVector<TensorId, bool> used_by_updates(const Graph& graph) {
  IdVector<TensorId, bool> used(graph.num_tensors(), false);
  for (const OpId op : graph.ops()) {
    if (graph.phase(op) != Phase::kUpdate) continue;
    for (const TensorId t : graph.inputs(op)) used[t] = true;
    for (const TensorId t : graph.mutates(op)) used[t] = true;
  }
  return used;
}

Category made_in(Phase phase) {
  if (phase == Phase::kUpdate) return Category::kOptimizer;
  return phase == Phase::kBackward ? Category::kGradient : Category::kActivation;
}

Category category_of(const Graph& graph, TensorId t, bool used_by_update) {
  switch (graph.kind(t)) {
    case TensorKind::kInput:
      return Category::kInput;
    case TensorKind::kParam:
      return Category::kParameter;
    case TensorKind::kState:
      return used_by_update ? Category::kOptimizer : Category::kBuffer;
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
  const IdVector<TensorId, bool> used = used_by_updates(graph);
  IdVector<TensorId, Category> found(graph.num_tensors(), Category::kActivation);
  for (const TensorId t : graph.tensors()) found[t] = category_of(graph, t, used[t]);
  return found;
}

}  // namespace regen::report
