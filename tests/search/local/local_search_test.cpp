// Starts of the local search where the least budget leaves no choice at some ops.
#include "regen/search/local/local_search.h"

#include <gtest/gtest.h>

#include "regen/graph/analysis.h"
#include "regen/models/zoo.h"
#include "regen/plan/validate.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/simulate/simulate.h"

namespace regen::search {
namespace {

// The bound holds for every plan with first runs in the graph's order (bounds.md), so that it does
// not depend on how plans are found. From keeping everything, repairs by estimates alone find no plan
// here.
TEST(LocalSearch, ManyOpsAtTheLeastBudgetCostLittleMoreThanTheBound) {
  const auto graph = zoo_graph("NASNetMobile");
  ASSERT_TRUE(graph.ok());
  ASSERT_GT(graph->num_ops(), 1'000u);
  const Problem problem{.graph = &*graph, .budget = structural_bound(*graph).bytes};
  Effort effort({.work = 4'000'000});
  LocalSearch search(problem, effort);
  search.start_exactly(0);
  ASSERT_TRUE(search.best());
  const Plan plan = search.best_plan();
  EXPECT_TRUE(validate(*graph, plan).ok());
  const auto simulation = simulate(*graph, plan);
  ASSERT_TRUE(simulation.ok());
  EXPECT_LE(simulation->peak_bytes, *problem.budget);
  Effort of_bound({.work = 4'000'000});
  const CoveringBound bound = covering_bound(*graph, {}, *problem.budget, of_bound);
  EXPECT_LT(simulation->cost, 1.1 * bound.cost);
}

}  // namespace
}  // namespace regen::search
