// A search with little host memory does not build the models that it has no room for, and goes on
// with what needs none.
#include <gtest/gtest.h>

#include "regen/graph/analysis.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/search/exact/linear_model.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr Limits kNoModels{.work = 200'000, .bytes = 1 << 16};
constexpr Limits kAnyModel{.work = 200'000};

Graph network() {
  auto graph = zoo_graph("vgg16");
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return std::move(*graph);
}

Problem tight(const Graph& graph) {
  const Bytes whole = live_bytes_keep_all(graph).peak_bytes;
  return {.graph = &graph, .budget = (whole + structural_bound(graph).bytes) / 2};
}

TEST(ByteLimit, ARelaxationThatIsTooLargeIsNotSolved) {
  const Graph graph = network();
  const auto within = solve("lp_bound", tight(graph), kAnyModel);
  ASSERT_TRUE(within.ok()) << within.error().message;
  EXPECT_EQ(within->note, "a lower bound only");
  const auto without = solve("lp_bound", tight(graph), kNoModels);
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_EQ(without->status, PlanStatus::kUnknown);
  EXPECT_NE(without->note.find("expected at most the limit of 65,536"), std::string::npos)
      << without->note;
}

TEST(ByteLimit, ExactPlannersGoOnWithoutTheirModels) {
  const Graph graph = network();
  const Problem problem = tight(graph);
  for (const char* planner : {"checkmate", "str", "auto"}) {
    const auto without = solve(planner, problem, kNoModels);
    ASSERT_TRUE(without.ok()) << without.error().message;
    ASSERT_TRUE(without->plan.has_value()) << planner;
    EXPECT_LE(without->simulation.peak_bytes, *problem.budget) << planner;
    EXPECT_GE(without->lower_bound, 0) << planner;
    EXPECT_LE(without->lower_bound, without->simulation.cost * (1 + 1e-9)) << planner;
  }
}

TEST(ByteLimit, EstimatesGrowWithTheModel) {
  EXPECT_EQ(estimated_model_bytes(0), 0);
  EXPECT_GT(estimated_model_bytes(300'000), std::int64_t{300} << 20);
  EXPECT_TRUE(Effort(kAnyModel).has_room_for(std::int64_t{1} << 60));
  EXPECT_FALSE(Effort(kNoModels).has_room_for((1 << 16) + 1));
  EXPECT_TRUE(Effort(kNoModels).has_room_for(1 << 16));
}

}  // namespace
}  // namespace regen::search
