// `auto` where variants of an op read other values or make more of them, as MONeT's do: the choice of
// implementations is planned around what search/ does.
#include <algorithm>

#include "regen/published/implementations/implementation_plans.h"
#include "regen/published/implementations/implementations.h"
#include "regen/published/planner_list.h"
#include "regen/search/portfolio/auto.h"
#include "regen/search/portfolio/variant_choice.h"

namespace regen::published {
namespace {

// Too many algorithms to try them all, each chosen for itself: there `monet` may find better.
bool many_algorithms(const Graph& graph) {
  const bool groups =
      std::ranges::any_of(graph.ops(), [&](OpId op) { return graph.choice_group(op).valid(); });
  return !groups && !search::variant_decisions(graph).empty() && !search::few_choices(graph);
}

Result<std::optional<search::Proposal>> over_implementations(const search::Problem& problem,
                                                             Effort& effort,
                                                             const search::PlanAsItIs& plan) {
  const Graph& graph = *problem.graph;
  if (!several_implementations(graph) && !many_algorithms(graph)) {
    return std::optional<search::Proposal>();
  }
  REGEN_ASSIGN(search::Proposal proposal, plan_implementations(problem, effort, plan));
  return std::optional(std::move(proposal));
}

}  // namespace

Result<search::Proposal> plan_auto(const search::Problem& problem, Effort& effort) {
  return search::plan_auto_over(problem, effort, over_implementations);
}

}  // namespace regen::published
