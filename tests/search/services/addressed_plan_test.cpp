#include "regen/search/services/addressed_plan.h"

#include <gtest/gtest.h>

#include "regen/graph/analysis.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr AddressOptions kOptions{.alignment = 4, .pack_work = 20'000};

Graph graph_number(std::uint64_t seed) {
  Random random(seed);
  return testing::random_training_graph(random, {.max_layers = 8, .max_bytes = 60});
}

// The validator counts addresses itself, so a plan that it accepts within the budget keeps it.
void expect_keeps(const Graph& graph, const Outcome& outcome, Bytes budget) {
  ASSERT_TRUE(outcome.plan && outcome.plan->addresses);
  const auto valid = validate(graph, *outcome.plan, {.budget = budget});
  ASSERT_TRUE(valid.ok()) << valid.error().message;
  EXPECT_EQ(valid->peak_bytes, outcome.simulation.peak_bytes);
  for (const Bytes address : *outcome.plan->addresses) EXPECT_EQ(address % kOptions.alignment, 0);
}

TEST(AddressedPlan, KeepsTheBudgetWithItsAddresses) {
  int met = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = graph_number(seed);
    const Bytes low = structural_bound(graph).bytes;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    Problem problem{.graph = &graph, .budget = low + (high - low) / 2};
    const auto outcome = solve_addressed("checkmate", problem, kOptions, {.work = 500'000});
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    if (!has_plan(*outcome)) continue;
    ++met;
    expect_keeps(graph, *outcome, *problem.budget);
  }
  EXPECT_GT(met, 30);
}

TEST(AddressedPlan, WithoutABudgetNothingIsRefused) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Graph graph = graph_number(seed);
    const auto outcome = solve_addressed("keep_all", {.graph = &graph}, kOptions);
    ASSERT_TRUE(outcome.ok());
    if (has_plan(*outcome)) expect_keeps(graph, *outcome, kMaxBytes);
  }
}

// Bytes that a budget leaves are of use to others: a generous one gives no worse addresses than
// none.
TEST(AddressedPlan, AGenerousBudgetIsNotFilledWithGaps) {
  for (const char* name : {"vgg_unet", "ResNet50"}) {
    const Graph graph = *zoo_graph(name);
    const auto free = solve_addressed("keep_all", {.graph = &graph}, {.alignment = 512});
    const auto generous =
        solve_addressed("keep_all", {.graph = &graph, .budget = kMaxBytes}, {.alignment = 512});
    ASSERT_TRUE(free.ok() && generous.ok());
    EXPECT_LE(generous->simulation.peak_bytes,
              1.01 * static_cast<double>(free->simulation.peak_bytes));
  }
}

TEST(AddressedPlan, ABudgetBelowTheBoundIsInfeasible) {
  const Graph graph = graph_number(3);
  const auto outcome = solve_addressed(
      "checkmate", {.graph = &graph, .budget = structural_bound(graph).bytes - 1}, kOptions);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->status, PlanStatus::kInfeasible);
}

}  // namespace
}  // namespace regen::search
