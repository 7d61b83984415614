#include "regen/search/services/max_batch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "regen/models/zoo.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

MaxBatchProblem vgg19_in(Bytes memory) {
  MaxBatchProblem problem{.memory = memory};
  problem.graph_at = [](std::int64_t batch) { return zoo_graph("VGG19", {.batch = batch}); };
  return problem;
}

TEST(MaxBatchSearch, NothingFitsBelowTheFixedBytes) {
  const auto answer = max_batch("keep_all", vgg19_in(1'000'000'000));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->max_batch, 0);
  EXPECT_EQ(answer->limited_by, "structural_bound");
}

TEST(MaxBatchSearch, NamesTheComputeCap) {
  const auto answer = max_batch("last_node", vgg19_in(16'000'000'000));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->max_batch, 0);
  EXPECT_EQ(answer->limited_by, "compute_cap");
}

TEST(MaxBatchSearch, WithoutTheCapEvenTheCostliestPlannerTrains) {
  MaxBatchProblem problem = vgg19_in(16'000'000'000);
  problem.compute_cap = false;
  EXPECT_EQ(max_batch("last_node", problem)->max_batch, 289);
}

TEST(MaxBatchSearch, StopsAtTheLargestBatchAsked) {
  MaxBatchProblem problem = vgg19_in(16'000'000'000);
  problem.largest = 100;
  const auto answer = max_batch("keep_all", problem);
  EXPECT_EQ(answer->max_batch, 100);
  EXPECT_EQ(answer->limited_by, "batch_limit");
}

// The answer fits and the next batch does not, whatever the guess: checked one by one.
TEST(MaxBatchSearch, EqualsAScanFromBelow) {
  for (const Bytes memory : {Bytes{2'000'000'000}, Bytes{3'141'592'653}, Bytes{5'000'000'000}}) {
    const auto answer = max_batch("chen_sqrt", vgg19_in(memory));
    std::int64_t scanned = 0;
    for (std::int64_t batch = 1;; ++batch) {
      const Graph graph = zoo_graph("VGG19", {.batch = batch}).value();
      const auto outcome = solve("chen_sqrt", {.graph = &graph, .budget = memory});
      if (outcome->status != PlanStatus::kFeasible) break;
      scanned = batch;
    }
    EXPECT_EQ(answer->max_batch, scanned) << memory;
  }
}

TEST(MaxBatchSearch, PlansNothingOnceInterrupted) {
  const std::atomic<bool> pressed{true};
  MaxBatchProblem problem = vgg19_in(16'000'000'000);
  problem.limits.interrupt = &pressed;
  const auto answer = max_batch("keep_all", problem);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->max_batch, 0);
  EXPECT_EQ(answer->limited_by, "interrupted");
}

TEST(MaxBatchSearch, KeepsTheBestBatchWhenInterrupted) {
  std::atomic<bool> pressed{false};
  MaxBatchProblem problem = vgg19_in(16'000'000'000);
  problem.limits.interrupt = &pressed;
  // Batch 1 is built for the guess, 289 is the guess; then the user loses patience.
  problem.graph_at = [&](std::int64_t batch) {
    if (batch > 289) pressed = true;
    return zoo_graph("VGG19", {.batch = batch});
  };
  const auto answer = max_batch("chen_greedy", problem);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->max_batch, 289);
  EXPECT_EQ(answer->limited_by, "interrupted");
}

// Without any time only the first try is made, which is to keep every value.
TEST(MaxBatchSearch, SaysWhenTheLimitOfASolveCameFirst) {
  MaxBatchProblem problem = vgg19_in(16'000'000'000);
  problem.limits.seconds = 0;
  const auto answer = max_batch("chen_greedy", problem);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->max_batch, 222);
  EXPECT_EQ(answer->limited_by, "search_limit");
}

// The search for the batch stops at any plan; the answer is still the cheapest.
TEST(MaxBatchSearch, AnswersWithTheCheapestPlanOfTheBatch) {
  const MaxBatchProblem problem = vgg19_in(5'000'000'000);
  const auto answer = max_batch("chen_greedy", problem);
  ASSERT_TRUE(answer.ok());
  const Graph graph = zoo_graph("VGG19", {.batch = answer->max_batch}).value();
  const auto outcome = solve("chen_greedy", {.graph = &graph, .budget = problem.memory});
  EXPECT_EQ(answer->cost, outcome->simulation.cost);
  EXPECT_EQ(answer->peak_bytes, outcome->simulation.peak_bytes);
}

TEST(MaxBatchSearch, RefusesABadGrid) {
  MaxBatchProblem problem = vgg19_in(16'000'000'000);
  problem.grid = {.start = 4, .step = 0};
  EXPECT_FALSE(max_batch("keep_all", problem).ok());
}

}  // namespace
}  // namespace regen::search
