#include "tests/support/planners/pareto.h"
#include "tests/support/planners/planners_by_name.h"

#include <gtest/gtest.h>

#include <iterator>
#include <optional>

#include "regen/search/judge.h"

namespace regen::testing {
namespace {

void expect_cost(std::string_view planner, const Graph& graph, Bytes budget,
                 std::optional<double> cost) {
  const auto outcome = search::solve(planner, {.graph = &graph, .budget = budget});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  if (!cost) {
    // A planner may fall back on a plan of another kind, but has nothing to claim.
    EXPECT_NE(outcome->status, search::PlanStatus::kOptimal) << "budget " << budget;
    return;
  }
  EXPECT_EQ(outcome->status, search::PlanStatus::kOptimal)
      << "budget " << budget << ", " << outcome->note;
  EXPECT_EQ(outcome->simulation.cost, *cost) << "budget " << budget;
}

}  // namespace

bool ParetoFront::add(Bytes bytes, double cost) {
  const auto above = points_.upper_bound(bytes);
  if (above != points_.begin() && std::prev(above)->second <= cost) return false;
  auto at = points_.insert_or_assign(bytes, cost).first;
  for (++at; at != points_.end() && at->second >= cost;) at = points_.erase(at);
  return true;
}

void expect_planner_on_front(std::string_view planner, const Graph& graph,
                             const ParetoFront& front) {
  std::optional<double> below;
  for (const auto& [bytes, cost] : front.points()) {
    expect_cost(planner, graph, bytes - 1, below);
    expect_cost(planner, graph, bytes, cost);
    below = cost;
  }
}

}  // namespace regen::testing
