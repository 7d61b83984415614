#include "regen/search/portfolio/order_choice.h"

#include <utility>

#include "regen/search/effort_fraction.h"
#include "regen/search/local/local_search.h"

namespace regen::search {
namespace {

// Quick plans differ by chance; less of a difference says nothing.
constexpr double kClearly = 0.998;
// Beyond these ops a quick plan is none that waits for another.
constexpr std::size_t kMostOps = 5'000;
// Of the effort, for the quick plan of one order.
constexpr double kQuickOrderFraction = 0.05;

double quick_cost(const Problem& problem, const Graph& graph, const Limits& limits,
                  Effort& effort) {
  Effort own(limits);
  const double cost = quick_plan(problem, graph, own, /*give_up=*/true).cost();
  effort.add(own.work());
  return cost;
}

}  // namespace

std::optional<OrderView> promising_order(const Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  if (graph.num_ops() > kMostOps) return std::nullopt;
  const Limits limits = fraction_of(effort, kQuickOrderFraction);
  double least = quick_cost(problem, graph, limits, effort) * kClearly;
  // Nothing is cheaper than to run every op once.
  if (least <= graph.base_cost() * kClearly) return std::nullopt;
  std::optional<OrderView> best;
  const OrderRules rules(graph);
  for (std::vector<OpId> order : {rules.early_release(), rules.late_making()}) {
    auto view = OrderView::make(graph, std::move(order));
    if (!view.ok()) continue;
    const double cost = quick_cost(problem, view->graph(), limits, effort);
    if (cost >= least) continue;
    least = cost;
    best = std::move(*view);
  }
  return best;
}

}  // namespace regen::search
