#include "regen/planners/variant_view.h"

#include <algorithm>
#include <utility>

#include "regen/graph/builder.h"
#include "regen/planners/recompute.h"

namespace regen {

std::vector<VariantId> plain_alternatives(const Graph& graph, OpId op) {
  const VariantId base = base_variant(graph, op);
  std::vector<VariantId> found;
  for (VariantId v : graph.variants(op)) {
    const bool same = std::ranges::equal(graph.reads(v), graph.reads(base)) &&
                      std::ranges::equal(graph.makes(v), graph.makes(base)) &&
                      graph.overwrites(v) == graph.overwrites(base);
    if (same) found.push_back(v);
  }
  return found;
}

VariantId fastest_within(const Graph& graph, OpId op, Bytes workspace) {
  const std::vector<VariantId> alternatives = plain_alternatives(graph, op);
  const auto worse = [&](VariantId a, VariantId b) {
    const bool a_over = graph.workspace(a) > workspace;
    const bool b_over = graph.workspace(b) > workspace;
    if (a_over != b_over) return a_over;
    if (a_over) return graph.workspace(a) > graph.workspace(b);
    return std::pair(graph.cost(a), graph.workspace(a)) >
           std::pair(graph.cost(b), graph.workspace(b));
  };
  return *std::ranges::max_element(alternatives,
                                   [&](VariantId a, VariantId b) { return worse(a, b); });
}

Result<VariantView> VariantView::make(const Graph& original, IdVector<OpId, VariantId> chosen) {
  VariantView view;
  GraphBuilder builder(original.name(), original.cost_unit());
  for (TensorId t : original.tensors()) builder.add_tensor(original.tensor_spec(t));
  view.numbers_ = IdVector<OpId, std::vector<std::size_t>>(original.num_ops());
  for (OpId op : original.ops()) {
    const std::vector<VariantId> alternatives = plain_alternatives(original, op);
    OpSpec spec = original.op_spec(op);
    std::vector<VariantSpec> variants;
    const auto all = original.variants(op);
    const auto take = [&](std::size_t number) {
      variants.push_back(spec.variants[number]);
      view.numbers_[op].push_back(number);
    };
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == chosen[op]) take(i);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool other_kind = std::ranges::find(alternatives, all[i]) == alternatives.end();
      if (other_kind) take(i);
    }
    spec.variants = std::move(variants);
    builder.add_op(std::move(spec));
  }
  REGEN_ASSIGN(view.graph_, std::move(builder).build());
  view.chosen_ = std::move(chosen);
  return view;
}

Plan VariantView::original(Plan plan) const {
  for (Step& step : plan.steps) {
    if (step.kind() == StepKind::kCompute) {
      step = Step::compute(step.op(), numbers_[step.op()][step.choice()]);
    }
  }
  return plan;
}

}  // namespace regen
