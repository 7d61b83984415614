#include "regen/search/build/variant_view.h"

#include <algorithm>
#include <utility>

#include "regen/graph/builder.h"
#include "regen/search/build/sequence.h"

namespace regen::search {

bool same_but_for_cost(const Graph& graph, VariantId a, VariantId b) {
  return std::ranges::equal(graph.reads(a), graph.reads(b)) &&
         std::ranges::equal(graph.makes(a), graph.makes(b)) &&
         graph.overwrites(a) == graph.overwrites(b);
}

std::vector<VariantId> plain_alternatives(const Graph& graph, OpId op) {
  const VariantId base = base_variant(graph, op);
  std::vector<VariantId> found;
  for (VariantId v : graph.variants(op)) {
    if (same_but_for_cost(graph, v, base)) found.push_back(v);
  }
  return found;
}

Result<VariantView> VariantView::make(const Graph& original, IdVector<OpId, VariantId> chosen) {
  IdVector<OpId, std::vector<std::size_t>> numbers(original.num_ops());
  for (OpId op : original.ops()) {
    const std::vector<VariantId> alternatives = plain_alternatives(original, op);
    const auto all = original.variants(op);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i] == chosen[op]) numbers[op].push_back(i);
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool other_kind = std::ranges::find(alternatives, all[i]) == alternatives.end();
      if (other_kind) numbers[op].push_back(i);
    }
  }
  return with_variants(original, std::move(numbers));
}

namespace {

// Which tensors some of the variants make.
IdVector<TensorId, char> made_by(const Graph& graph,
                                 const IdVector<OpId, std::vector<std::size_t>>& numbers) {
  IdVector<TensorId, char> made(graph.num_tensors(), 0);
  for (OpId op : graph.ops()) {
    for (const std::size_t number : numbers[op]) {
      for (TensorId t : graph.makes(graph.variants(op)[number])) made[t] = 1;
    }
  }
  return made;
}

// The op with these variants, and of its inputs those that they read.
OpSpec narrowed(const Graph& graph, OpId op, const std::vector<std::size_t>& numbers) {
  OpSpec spec = graph.op_spec(op);
  const auto reads = [&](std::size_t number) { return graph.reads(graph.variants(op)[number]); };
  std::erase_if(spec.inputs, [&](TensorId t) {
    return std::ranges::none_of(numbers, [&](std::size_t number) {
      return std::ranges::find(reads(number), t) != reads(number).end();
    });
  });
  std::vector<VariantSpec> variants;
  for (const std::size_t number : numbers) {
    VariantSpec& variant = variants.emplace_back(spec.variants[number]);
    variant.reads.reset();
    if (!std::ranges::equal(reads(number), spec.inputs)) {
      variant.reads.emplace(reads(number).begin(), reads(number).end());
    }
  }
  spec.variants = std::move(variants);
  return spec;
}

}  // namespace

Result<VariantView> VariantView::with_variants(const Graph& original,
                                               IdVector<OpId, std::vector<std::size_t>> numbers) {
  VariantView view;
  GraphBuilder builder(original.name(), original.cost_unit());
  const IdVector<TensorId, char> made = made_by(original, numbers);
  for (TensorId t : original.tensors()) {
    TensorSpec spec = original.tensor_spec(t);
    if (!original.fixed(t) && !made[t]) {
      spec.kind = TensorKind::kInput;
      spec.bytes = 0;
    }
    builder.add_tensor(std::move(spec));
  }
  view.chosen_ = view.originals_ = IdVector<OpId, VariantId>(original.num_ops());
  for (OpId op : original.ops()) {
    view.originals_[op] = original.default_variant(op);
    view.chosen_[op] = original.variants(op)[numbers[op].front()];
    builder.add_op(narrowed(original, op, numbers[op]));
  }
  REGEN_ASSIGN(view.graph_, std::move(builder).build());
  view.numbers_ = std::move(numbers);
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

Plan VariantView::viewed(Plan plan) const {
  plan.fingerprint = graph_.fingerprint();
  for (Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute) continue;
    const std::vector<std::size_t>& numbers = numbers_[step.op()];
    const auto place = std::ranges::find(numbers, step.choice());
    const auto number = place == numbers.end() ? 0 : place - numbers.begin();
    step = Step::compute(step.op(), static_cast<std::size_t>(number));
  }
  return plan;
}

}  // namespace regen::search
