#include "regen/search/portfolio/variant_refinement.h"

#include <utility>

#include "regen/search/build/variant_view.h"

namespace regen::search {
namespace {

// The number of the fastest variant of the step's op with at most so much workspace.
std::size_t fastest_choice(const Graph& graph, const Step& step, bool again, Bytes workspace) {
  const VariantId now = step.variant(graph);
  const auto cost = [&](VariantId v) { return again ? graph.rerun_cost(v) : graph.cost(v); };
  std::size_t best = step.choice();
  double least = cost(now);
  std::size_t number = 0;
  for (VariantId v : graph.variants(step.op())) {
    const bool fits = graph.workspace(v) <= workspace && same_but_for_cost(graph, v, now);
    if (fits && cost(v) < least) {
      least = cost(v);
      best = number;
    }
    ++number;
  }
  return best;
}

}  // namespace

Result<Plan> with_fastest_variants(const Graph& graph, Plan plan, const Link& link, Bytes budget) {
  REGEN_ASSIGN(const Simulation simulation, simulate(graph, plan, {.link = link, .record = true}));
  IdVector<OpId, char> ran(graph.num_ops(), 0);
  for (std::size_t k = 0; k < plan.steps.size(); ++k) {
    Step& step = plan.steps[k];
    if (step.kind() != StepKind::kCompute) continue;
    if (graph.choice_group(step.op()).valid()) continue;  // all runs of a group go the same way
    const bool again = std::exchange(ran[step.op()], 1) != 0;
    const Bytes room = budget - simulation.records[k].device_bytes;
    if (room < 0) continue;
    const Bytes workspace = graph.workspace(step.variant(graph)) + room;
    step = Step::compute(step.op(), fastest_choice(graph, step, again, workspace));
  }
  return plan;
}

}  // namespace regen::search
