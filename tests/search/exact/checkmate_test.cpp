// The exact planner against exhaustive search, published numbers and its own promises.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/published/options.h"
#include "regen/search/judge.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

// All 2,000 graphs take minutes; REGEN_EXHAUSTIVE=1 asks for them.
int graphs_to_try(int sample) {
  return testing::exhaustive() ? 1000 : sample;
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
    Random random(testing::first_seed() + static_cast<std::uint64_t>(seed));
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
    Random random(testing::first_seed() + static_cast<std::uint64_t>(seed) + 1'000'000);
    const Graph graph =
        testing::random_mirrored_graph(random, static_cast<int>(random.between(1, 4)));
    expect_equal_at_every_budget(graph, true);
    if (HasFatalFailure()) return;
  }
}

// The published optimum (checkmate.md 7.4), here with a proof.
TEST(Checkmate, Vgg19AtItsStructuralBoundCostsWhatWasPublished) {
  const auto graph = zoo_graph("vgg19", {.batch = 1, .backward = BackwardStyle::kCheckmate});
  ASSERT_TRUE(graph.ok());
  for (const bool gradients_again : {false, true}) {
    expect_optimum_at(*graph, gradients_again, 51'380'224, 58'982'891'520);
  }
}

TEST(Checkmate, WithoutTimeItStillReturnsAHeuristicPlan) {
  const auto graph = zoo_graph("ResNet50", {.batch = 1, .backward = BackwardStyle::kCheckmate});
  ASSERT_TRUE(graph.ok());
  const Problem problem{.graph = &*graph, .budget = graph->fixed_bytes() + 60'000'000};
  const auto outcome = solve("checkmate", problem, {.seconds = 0});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->status, PlanStatus::kFeasible);
  EXPECT_LE(outcome->simulation.peak_bytes, *problem.budget);
}

TEST(Checkmate, GoesOnFromThePlanItIsGivenIfThatIsForTheGraph) {
  const Graph graph = zoo_graph("ResNet50", {.batch = 1}).value();
  Problem problem{.graph = &graph, .budget = structural_bound(graph).bytes * 5 / 4};
  const auto known = solve("checkmate", problem, {.work = 3'000'000}).value();
  const auto short_of_work = solve("checkmate", problem, {.work = 1}).value();
  ASSERT_TRUE(known.plan && short_of_work.plan);
  Plan start = *known.plan;
  start.fingerprint = graph.fingerprint();
  problem.start = &start;
  const auto gone_on = solve("checkmate", problem, {.work = 1}).value();
  EXPECT_LE(gone_on.simulation.cost, known.simulation.cost);
  EXPECT_LT(gone_on.simulation.cost, short_of_work.simulation.cost);
  ++start.fingerprint;
  EXPECT_EQ(solve("checkmate", problem, {.work = 1}).value().simulation.cost,
            short_of_work.simulation.cost);
}

TEST(Checkmate, TheSameCountedWorkGivesTheSamePlanAndBound) {
  const auto graph = zoo_graph("MobileNet", {.batch = 1, .backward = BackwardStyle::kCheckmate});
  ASSERT_TRUE(graph.ok());
  const Problem problem{.graph = &*graph, .budget = graph->fixed_bytes() + 20'000'000};
  const auto first = solve("checkmate", problem, {.work = 10'000'000});
  const auto second = solve("checkmate", problem, {.work = 10'000'000});
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->plan && second->plan);
  EXPECT_EQ(first->plan->steps, second->plan->steps);
  EXPECT_EQ(first->lower_bound, second->lower_bound);
  EXPECT_EQ(first->work, second->work);
}

TEST(Checkmate, AnInterruptedSearchReturnsWhatItHas) {
  const auto graph = zoo_graph("MobileNet", {.batch = 1, .backward = BackwardStyle::kCheckmate});
  ASSERT_TRUE(graph.ok());
  std::atomic<bool> stop{false};
  Problem problem{.graph = &*graph, .budget = graph->fixed_bytes() + 13'000'000};
  // As soon as there are a plan and a bound above the trivial one.
  problem.observer = [&](double, std::optional<double> incumbent, double bound) {
    if (incumbent && bound > graph->base_cost() * 1.01) stop = true;
  };
  const auto outcome = solve("checkmate", problem, {.interrupt = &stop});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->status, PlanStatus::kFeasible);
  EXPECT_GT(outcome->lower_bound, graph->base_cost() * 1.01);
  EXPECT_LT(outcome->lower_bound, outcome->simulation.cost);
}

TEST(Checkmate, StopsAtTheGapAskedFor) {
  const auto graph = zoo_graph("vgg_unet", {.batch = 1, .backward = BackwardStyle::kCheckmate});
  ASSERT_TRUE(graph.ok());
  Problem problem{.graph = &*graph, .budget = graph->fixed_bytes() + 320'000'000};
  problem.options.gap = 0.02;
  const auto outcome = solve("checkmate", problem);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  ASSERT_TRUE(outcome->plan.has_value());
  EXPECT_LE(outcome->gap, 0.02 + 1e-9);
}

// On a chain every imposed schedule has the optimum of the stages, and a weaker relaxation.
TEST(Checkmate, ImposedSchedulesHaveTheSameOptimumOnAChain) {
  const auto graph = zoo_graph("chain:3", {});
  ASSERT_TRUE(graph.ok());
  Problem problem{.graph = &*graph, .budget = graph->fixed_bytes() + 3};
  const auto stages = solve("checkmate", problem);
  ASSERT_TRUE(stages.ok());
  ASSERT_EQ(stages->status, PlanStatus::kOptimal);
  for (const auto schedule :
       {published::ImposedSchedule::kCoverAll, published::ImposedSchedule::kCoverLast}) {
    problem.options.extra = published::Options{.schedule = schedule};
    const auto imposed = solve("checkmate", problem);
    ASSERT_TRUE(imposed.ok()) << imposed.error().message;
    ASSERT_EQ(imposed->status, PlanStatus::kOptimal);
    EXPECT_EQ(imposed->simulation.cost, stages->simulation.cost);
    const auto relaxed = solve("lp_bound", problem);
    ASSERT_TRUE(relaxed.ok());
    EXPECT_LE(relaxed->lower_bound, stages->simulation.cost);
  }
}

}  // namespace
}  // namespace regen::search
