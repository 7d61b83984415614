#include "regen/search/services/batch_curve.h"

#include <gtest/gtest.h>

#include "regen/graph/batch_scaling.h"
#include "regen/models/zoo.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

BatchCurveProblem vgg19_at(std::int64_t batch) {
  BatchCurveProblem problem{.batch = batch};
  problem.graph_at = [](std::int64_t b) { return zoo_graph("VGG19", {.batch = b}); };
  return problem;
}

// From below, one by one, until a batch does not fit.
std::int64_t scanned(const char* planner, const GraphAtBatch& graph_at, Bytes budget) {
  for (std::int64_t batch = 1;; ++batch) {
    const Graph graph = graph_at(batch).value();
    const auto outcome = solve(planner, {.graph = &graph, .budget = budget});
    const bool found =
        outcome->status == PlanStatus::kFeasible || outcome->status == PlanStatus::kOptimal;
    if (!found || !within_one_forward_pass(graph, outcome->simulation.cost)) return batch - 1;
  }
}

TEST(LargestBatches, EqualAScanFromBelowAtEachBudget) {
  const BatchCurveProblem problem = vgg19_at(16);
  const std::vector<BatchBudget> budgets{{1'200'000'000}, {2'000'000'000}, {3'141'592'653}};
  for (const char* planner : {"keep_all", "chen_sqrt", "chen_greedy"}) {
    const auto answers = largest_batches(planner, problem, budgets);
    ASSERT_TRUE(answers.ok()) << answers.error().message;
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      EXPECT_EQ((*answers)[i].batch, scanned(planner, problem.graph_at, budgets[i].bytes))
          << planner << " in " << budgets[i].bytes;
      EXPECT_TRUE((*answers)[i].settled);
    }
  }
}

TEST(LargestBatches, SayWhereTheSearchEndedFirst) {
  BatchCurveProblem problem = vgg19_at(16);
  problem.most_solves = 1;
  const std::vector<BatchBudget> budgets{{5'000'000'000, /*fits=*/true}};
  const LargestBatch answer = largest_batches("chen_greedy", problem, budgets)->front();
  EXPECT_GE(answer.batch, 16);
  EXPECT_FALSE(answer.settled);
}

// What is known to fit is the answer where nothing larger does, without another plan for it.
TEST(LargestBatches, BelieveWhatIsKnownToFit) {
  const std::vector<BatchBudget> budgets{{1'149'000'000}, {1'200'000'000, /*fits=*/true}};
  const auto answers = largest_batches("keep_all", vgg19_at(16), budgets);
  EXPECT_EQ((*answers)[0].batch, 0);  // less than the parameters
  EXPECT_EQ((*answers)[1].batch, 16);
}

// A graph of a file: bytes in proportion, so that twice the room holds twice the batch.
TEST(LargestBatches, OfScaledGraphs) {
  const Graph graph = zoo_graph("VGG19", {.batch = 4}).value();
  BatchCurveProblem problem{.batch = 4};
  problem.graph_at = [&](std::int64_t batch) { return at_batch(graph, 4, batch); };
  const std::vector<BatchBudget> budgets{{2'000'000'000}, {3'000'000'000}};
  const auto scaled = largest_batches("chen_greedy", problem, budgets);
  const auto built = largest_batches("chen_greedy", vgg19_at(4), budgets);
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    EXPECT_EQ((*scaled)[i].batch, (*built)[i].batch);
  }
}

}  // namespace
}  // namespace regen::search
