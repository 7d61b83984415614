// The exact planner against exhaustive search, published numbers and its own promises.
#include <gtest/gtest.h>

#include <cstdlib>

#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/planners/planner.h"
#include "tests/support/frontier_oracle.h"

namespace regen {
namespace {

// All 2,000 graphs take minutes; REGEN_EXHAUSTIVE=1 asks for them.
int graphs_to_try(int sample) {
  return std::getenv("REGEN_EXHAUSTIVE") != nullptr ? 1000 : sample;
}

void expect_optimum_at(const Graph& graph, bool gradients_again, Bytes budget, double cost) {
  Problem problem{.graph = &graph, .budget = budget + graph.fixed_bytes()};
  problem.options.recompute_gradients = gradients_again;
  const auto outcome = solve("checkmate", problem);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_EQ(outcome->status, PlanStatus::kOptimal) << outcome->note;
  EXPECT_EQ(outcome->simulation.cost, cost) << "budget " << budget;
  EXPECT_EQ(outcome->lower_bound, cost);
}

void expect_equal_at_every_budget(const Graph& graph, bool gradients_again) {
  const auto tradeoffs = testing::frontier_tradeoffs(graph, gradients_again);
  ASSERT_FALSE(tradeoffs.empty());
  for (std::size_t i = 0; i < tradeoffs.size(); ++i) {
    expect_optimum_at(graph, gradients_again, tradeoffs[i].peak, tradeoffs[i].cost);
    // One byte less: the schedule before this one is the best, or there is none.
    if (i > 0 && tradeoffs[i].peak - 1 > tradeoffs[i - 1].peak) {
      expect_optimum_at(graph, gradients_again, tradeoffs[i].peak - 1, tradeoffs[i - 1].cost);
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
  Problem problem{.graph = &graph, .budget = tradeoffs[0].peak - 1 + graph.fixed_bytes()};
  problem.options.recompute_gradients = gradients_again;
  const auto outcome = solve("checkmate", problem);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->status, PlanStatus::kInfeasible);
}

TEST(Checkmate, EqualsExhaustiveSearchWhenGradientsRunOnce) {
  for (int seed = 0; seed < graphs_to_try(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed));
    const int most = graphs_to_try(0) > 0 ? 9 : 6;
    const Graph graph =
        testing::random_mirrored_graph(random, static_cast<int>(random.between(2, most)));
    expect_equal_at_every_budget(graph, false);
    if (HasFatalFailure()) return;
  }
}

TEST(Checkmate, EqualsExhaustiveSearchWhenEverythingMayRunAgain) {
  for (int seed = 0; seed < graphs_to_try(40); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed) + 1'000'000);
    const Graph graph = testing::random_mirrored_graph(random, static_cast<int>(random.between(1, 4)));
    expect_equal_at_every_budget(graph, true);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace regen
