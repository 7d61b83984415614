// The options of the planners over lower sets, on graphs with everything a graph can say.
#include <gtest/gtest.h>

#include "regen/models/zoo.h"
#include "regen/published/options.h"
#include "regen/search/judge.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::published {
namespace {

// solve() validates and simulates every plan; an error would be a plan that is not allowed.
TEST(LowerSets, EveryModelAndPreferenceGivesAllowedPlans) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8, .oddities = 0.2});
    const Bytes keep = search::solve("keep_all", {.graph = &graph})->simulation.peak_bytes;
    for (const char* planner : {"lower_sets", "lower_sets_approx", "chen_cuts"}) {
      for (const PlanningModel model : {PlanningModel::kLiveness, PlanningModel::kPublished}) {
        for (const Preference prefer : {Preference::kTime, Preference::kMemory}) {
          search::Problem problem{.graph = &graph};
          problem.options.extra = Options{.prefer = prefer, .model = model};
          if (seed % 2 == 0) problem.budget = keep - random.between(0, keep / 4);
          const auto outcome = search::solve(planner, problem);
          ASSERT_TRUE(outcome.ok()) << outcome.error().message;
        }
      }
    }
  }
}

TEST(LowerSets, NoPlanIsWorseThanKeepingEverything) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Graph graph = testing::random_training_graph(random);
    const auto keep = search::solve("keep_all", {.graph = &graph}).value();
    const auto lean =
        search::solve("lower_sets", {.graph = &graph,
                                     .options = {.extra = Options{.prefer = Preference::kMemory}}})
            .value();
    EXPECT_LE(lean.simulation.peak_bytes, keep.simulation.peak_bytes);
    const auto fast = search::solve("lower_sets", {.graph = &graph}).value();
    EXPECT_LE(fast.simulation.cost, keep.simulation.cost);
  }
}

// No time to search: what takes no search is still offered.
TEST(LowerSets, WithoutTimeAPlanThatNeedsNoSearchIsReturned) {
  const Graph graph = zoo_graph("VGG19", {.batch = 64}).value();
  const Bytes keep = search::solve("keep_all", {.graph = &graph})->simulation.peak_bytes;
  const search::Problem problem{.graph = &graph, .budget = keep - 1};
  const auto outcome = search::solve("lower_sets", problem, {.seconds = 0}).value();
  EXPECT_EQ(outcome.status, search::PlanStatus::kFeasible) << outcome.note;
  EXPECT_LT(outcome.simulation.peak_bytes, keep);
  // And counted work gives the same answer twice.
  const auto once = search::solve("lower_sets", problem, {.work = 500}).value();
  const auto twice = search::solve("lower_sets", problem, {.work = 500}).value();
  EXPECT_EQ(once.plan, twice.plan);
}

// Each running average of the batch normalisations could come or not come with any set.
TEST(LowerSets, OpsThatNobodyReadsDoNotBlowUpTheLattice) {
  const Graph graph =
      zoo_graph("ResNet50", {.batch = 8, .backward = BackwardStyle::kExact}).value();
  const auto keep = search::solve("keep_all", {.graph = &graph}).value();
  const search::Problem problem{.graph = &graph, .budget = keep.simulation.peak_bytes * 3 / 4};
  const auto outcome = search::solve("lower_sets", problem).value();
  EXPECT_EQ(outcome.status, search::PlanStatus::kFeasible);
  EXPECT_NE(outcome.note.find("241 lower sets"), std::string::npos) << outcome.note;
}

}  // namespace
}  // namespace regen::published
