#include "regen/plan/whereabouts.h"

#include <algorithm>
#include <array>
#include <span>

namespace regen {
namespace {

std::size_t first_run(const Plan& plan, OpId op) {
  const auto runs = [&](const Step& step) {
    return step.kind() == StepKind::kCompute && step.op() == op;
  };
  return static_cast<std::size_t>(std::ranges::find_if(plan.steps, runs) - plan.steps.begin());
}

void follow(const Graph& graph, const Step& step, IdVector<TensorId, Whereabouts>& where) {
  switch (step.kind()) {
    case StepKind::kCompute: {
      const VariantId v = step.variant(graph);
      if (graph.overwrites(v).valid()) where[graph.overwrites(v)] = Whereabouts::kGone;
      for (TensorId t : graph.makes(v)) where[t] = Whereabouts::kHeld;
      break;
    }
    case StepKind::kFetch:
      where[step.tensor()] = Whereabouts::kHeld;
      break;
    case StepKind::kRelease:
      where[step.tensor()] = Whereabouts::kGone;
      break;
    case StepKind::kOffload:
      break;
  }
}

// What is gone so far may come back; the first step that brings it says how.
void look_ahead(const Graph& graph, const Step& step, IdVector<TensorId, Whereabouts>& where) {
  const auto comes_back = [&](TensorId t, Whereabouts how) {
    if (where[t] == Whereabouts::kGone) where[t] = how;
  };
  if (step.kind() == StepKind::kFetch) comes_back(step.tensor(), Whereabouts::kMoved);
  if (step.kind() != StepKind::kCompute) return;
  for (TensorId t : graph.makes(step.variant(graph))) comes_back(t, Whereabouts::kMadeAgain);
}

}  // namespace

std::string_view to_string(Whereabouts whereabouts) {
  constexpr std::array<std::string_view, 5> kNames{"held", "moved", "made again", "gone",
                                                   "not made"};
  return kNames[static_cast<std::size_t>(whereabouts)];
}

IdVector<TensorId, Whereabouts> whereabouts(const Graph& graph, const Plan& plan, OpId op) {
  IdVector<TensorId, Whereabouts> where(graph.num_tensors(), Whereabouts::kNotMade);
  for (TensorId t : graph.tensors()) {
    if (graph.fixed(t)) where[t] = Whereabouts::kHeld;
  }
  const std::span<const Step> steps(plan.steps);
  const std::size_t now = first_run(plan, op);
  for (const Step& step : steps.first(now)) follow(graph, step, where);
  for (const Step& step : steps.subspan(now)) look_ahead(graph, step, where);
  return where;
}

bool keeps_order(const Plan& plan) {
  std::size_t next = 0;
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute || step.op().index() < next) continue;
    if (step.op().index() > next++) return false;
  }
  return true;
}

}  // namespace regen
