#include "regen/search/services/background_search.h"

#include <gtest/gtest.h>

#include "regen/graph/analysis.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr AddressOptions kOptions{.alignment = 512, .pack_work = 20'000};

std::shared_ptr<const Graph> shared_zoo(const char* name) {
  return std::make_shared<const Graph>(*zoo_graph(name));
}

Problem half_way(const Graph& graph) {
  const Bytes low = structural_bound(graph).bytes;
  const Bytes high = live_bytes_keep_all(graph).peak_bytes;
  return {.graph = &graph, .budget = low + (high - low) / 2};
}

TEST(BackgroundSearch, FindsWhatASearchInTheForegroundFinds) {
  const auto graph = shared_zoo("vgg_unet");
  const std::vector<const Planner*> planners = planners_named({"chain", "auto"});
  const Limits limits{.work = 50'000};
  BackgroundSearch search(graph, planners, half_way(*graph), kOptions, limits);
  const auto expected = best_addressed(planners, half_way(*graph), kOptions, limits);
  search.wait();
  ASSERT_TRUE(search.ended() && search.outcome().ok() && expected.ok());
  ASSERT_TRUE(has_plan(*search.outcome()));
  EXPECT_EQ(search.outcome()->plan->steps, expected->plan->steps);
  EXPECT_EQ(search.outcome()->simulation.cost, expected->simulation.cost);
}

// Hours are given; a search that does not listen would take them.
TEST(BackgroundSearch, StopsWhenAsked) {
  for (const char* planner : {"auto", "checkmate", "str", "lower_sets", "monet"}) {
    const auto graph = shared_zoo("ResNet50");
    BackgroundSearch search(graph, {&planner_named(planner)}, half_way(*graph), kOptions,
                            {.seconds = 36'000});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    search.stop();
    search.wait();
    EXPECT_TRUE(search.ended()) << planner;
  }
}

TEST(BackgroundSearch, GoesWithItsOwnerAndKeepsTheGraphSoLong) {
  auto graph = shared_zoo("ResNet50");
  const Problem problem = half_way(*graph);
  BackgroundSearch search(std::move(graph), {&planner_named("auto")}, problem, kOptions,
                          {.seconds = 36'000});
  EXPECT_FALSE(search.ended());
}

TEST(BackgroundSearch, SaysWhyItFailed) {
  const auto graph = shared_zoo("vgg_unet");
  const Planner failing{"failing", "", [](const Problem&, Effort&) -> Result<Proposal> {
                          return bad_input("a graph that it cannot take");
                        }};
  BackgroundSearch search(graph, {&failing}, half_way(*graph), kOptions, {});
  search.wait();
  ASSERT_FALSE(search.outcome().ok());
  EXPECT_EQ(search.outcome().error().message, "a graph that it cannot take");
}

TEST(BackgroundSearch, OnlyACheaperPlanWithinTheLimitsIsBetter) {
  const auto graph = shared_zoo("vgg_unet");
  const Problem problem = half_way(*graph);
  Problem tight = problem;
  tight.budget = (structural_bound(*graph).bytes + *problem.budget) / 2;
  const auto expensive = solve_addressed("auto", tight, kOptions, {.work = 50'000});
  const auto cheap = solve_addressed("auto", problem, kOptions, {.work = 50'000});
  ASSERT_TRUE(expensive.ok() && cheap.ok() && has_plan(*expensive) && has_plan(*cheap));
  ASSERT_LT(cheap->simulation.cost, expensive->simulation.cost);
  EXPECT_TRUE(*is_better(problem, *cheap, *expensive->plan));
  EXPECT_FALSE(*is_better(problem, *expensive, *cheap->plan));
  EXPECT_FALSE(*is_better(problem, *cheap, *cheap->plan));
  Problem smaller = problem;
  smaller.budget = cheap->simulation.peak_bytes - 1;
  EXPECT_FALSE(*is_better(smaller, *cheap, *expensive->plan));
}

}  // namespace
}  // namespace regen::search
