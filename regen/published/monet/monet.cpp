// MONeT's problem: what to store and recompute in each stage of the backward pass, and which
// implementation each op uses, at the least modelled time within the budget.
#include <algorithm>

#include "regen/published/monet/monet_binding.h"
#include "regen/published/monet/monet_plan.h"
#include "regen/published/monet/monet_solver.h"
#include "regen/published/options.h"
#include "regen/published/planner_list.h"
#include "regen/search/build/sequence.h"
#include "regen/search/build/variant_view.h"

namespace regen::published {
namespace {

// Pairs of stage and node: beyond this a single schedule fills memory and minutes.
constexpr std::size_t kMostPairs = 100'000'000;

bool has_choice_groups(const Graph& graph) {
  return std::ranges::any_of(graph.ops(), [&](OpId op) { return graph.choice_group(op).valid(); });
}

std::string share_text(const MonetAnswer& answer) {
  const double gap = 1 - answer.bound / static_cast<double>(answer.objective);
  return "monet objective " + std::to_string(answer.objective / 100) + "." +
         std::to_string(answer.objective / 10 % 10) + std::to_string(answer.objective % 10) +
         " ms, gap " + std::to_string(100 * std::max(0.0, gap)).substr(0, 5) + " %";
}

}  // namespace

Result<search::Proposal> plan_monet(const search::Problem& problem, Effort& effort) {
  // It chooses for each op by itself, so ops that must choose together are left in their first way.
  search::Problem own = problem;
  std::optional<search::VariantView> view;
  if (has_choice_groups(*problem.graph)) {
    IdVector<OpId, VariantId> first(problem.graph->num_ops());
    for (OpId op : problem.graph->ops()) first[op] = search::base_variant(*problem.graph, op);
    REGEN_ASSIGN(view, search::VariantView::make(*problem.graph, std::move(first)));
    own.graph = &view->graph();
  }
  const Graph& graph = *own.graph;
  REGEN_ASSIGN(const MonetBinding binding, bind_monet(graph));
  const MonetInstance& instance = binding.instance;
  if (instance.nodes.size() * (instance.loss + 1) > kMostPairs) {
    return limit_reached("more than " + format_grouped(kMostPairs) +
                         " pairs of stage and forward op");
  }
  MonetQuestion question{.instance = &instance,
                         .mode = options_of(own).monet_mode,
                         .once = binding.once,
                         .budget = own.budget,
                         .seed = own.options.seed,
                         .gap = own.options.gap,
                         .on_progress = {}};
  // Ticks back into the unit of the graph, which counts unrounded times.
  const double unit = graph.cost_unit() == CostUnit::kSecond ? 1e-5 : 1e7;
  if (own.observer) {
    question.on_progress = [&](std::optional<double> best, double bound) {
      if (best) *best *= unit;
      own.observer(effort.seconds(), best, bound * unit);
    };
  }
  REGEN_ASSIGN(const MonetAnswer answer, solve_monet(question, effort));
  search::Proposal proposal{.status = search::PlanStatus::kUnknown, .note = answer.note};
  proposal.figures.emplace_back("monet_bound_ms", answer.bound / 100);
  if (answer.infeasible) {
    proposal.status = search::PlanStatus::kInfeasible;
    proposal.note = "no schedule of MONeT's program fits";
    return proposal;
  }
  if (!answer.solution) {
    proposal.note += (proposal.note.empty() ? "" : "; ") + std::string("no schedule found");
    return proposal;
  }
  const auto objective = static_cast<double>(answer.objective);
  proposal.figures.emplace_back("monet_objective_ms", objective / 100);
  proposal.figures.emplace_back("monet_gap", std::max(0.0, 1 - answer.bound / objective));
  proposal.status = search::PlanStatus::kFeasible;
  proposal.note += (proposal.note.empty() ? "" : "; ") + share_text(answer);
  proposal.plan = plan_of_monet(graph, binding, *answer.solution);
  if (view) proposal.plan = view->original(std::move(*proposal.plan));
  return proposal;
}

}  // namespace regen::published
