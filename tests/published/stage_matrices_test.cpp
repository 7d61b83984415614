// Plans as R, S, P, Q matrices: the published forms in and out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "regen/graph/builder.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/published/checkmate/stage_matrices.h"
#include "regen/search/judge.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::published {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StageMatrix matrix(const std::string& text) {
  return parse_stage_matrix(text, "test").value();
}

// a -> b -> c, and d reads a and c. One byte and a cost of 1 each.
Graph small_graph() {
  GraphBuilder builder("small");
  const auto add = [&](const char* name, std::vector<TensorId> inputs, TensorKind kind) {
    return builder.add_simple_op(name, "op", Phase::kForward, std::move(inputs), 1, kind, 1);
  };
  const TensorId a = add("a", {}, TensorKind::kActivation);
  const TensorId b = add("b", {a}, TensorKind::kActivation);
  const TensorId c = add("c", {b}, TensorKind::kActivation);
  add("d", {a, c}, TensorKind::kOutput);
  return std::move(builder).build().value();
}

std::vector<std::string> steps_of(const Graph& graph, const Plan& plan) {
  std::vector<std::string> list;
  for (const Step& step : plan.steps) {
    const bool computes = step.kind() == StepKind::kCompute;
    list.push_back(std::string(to_string(step.kind())) + " " +
                   (computes ? graph.name(step.op()) : graph.name(step.tensor())));
  }
  return list;
}

TEST(StageMatrices, RecomputationWithoutSKeepsValuesUntilTheirLastUse) {
  const Graph graph = small_graph();
  const StageMatrices matrices{.r = matrix("1 0 0 0\n0 1 0 0\n0 0 1 0\n1 0 0 1\n"),
                               .p = StageMatrix(4),
                               .q = StageMatrix(4)};
  const auto plan = plan_from_matrices(graph, matrices);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  // a is made again for d, so that it leaves after b.
  EXPECT_THAT(steps_of(graph, *plan),
              ElementsAre("compute a", "compute b", "release a", "compute c", "release b",
                          "compute a", "compute d", "release a", "release c"));
  EXPECT_TRUE(validate(graph, *plan).ok());
}

TEST(StageMatrices, ASwapLeavesInItsStageAndComesBackInItsStage) {
  const Graph graph = small_graph();
  // S as STR has it: a is there for stage 1, on the host for stage 2, and back from stage 3 on.
  const StageMatrices matrices{.r = matrix("1 0 0 0\n0 1 0 0\n0 0 1 0\n0 0 0 1\n"),
                               .s = matrix("0 0 0 0\n1 0 0 0\n0 1 0 0\n1 0 1 0\n"),
                               .p = matrix("0 0 0 0\n1 0 0 0\n0 0 0 0\n0 0 0 0\n"),
                               .q = matrix("0 0 0 0\n0 0 0 0\n1 0 0 0\n0 0 0 0\n")};
  const auto plan = plan_from_matrices(graph, matrices);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_THAT(steps_of(graph, *plan),
              ElementsAre("compute a", "offload a", "compute b", "release a", "fetch a",
                          "compute c", "release b", "compute d", "release a", "release c"));
  EXPECT_TRUE(validate(graph, *plan).ok());
  EXPECT_EQ(matrices_from_plan(graph, *plan).value(), matrices);
}

// Such entries cost nothing in STR's program, so that its solutions are full of them.
TEST(StageMatrices, AFetchThatNobodyMeetsIsLeftOut) {
  const Graph graph = small_graph();
  StageMatrices matrices{.r = matrix("1 0 0 0\n0 1 0 0\n0 0 1 0\n1 0 0 1\n"),
                         .p = matrix("0 0 0 0\n1 0 0 0\n0 0 0 0\n0 0 0 0\n"),
                         .q = matrix("0 0 0 0\n0 0 0 0\n1 0 0 0\n0 0 0 0\n")};
  const auto plan = plan_from_matrices(graph, matrices);
  ASSERT_TRUE(plan.ok());
  for (const Step& step : plan->steps) EXPECT_NE(step.kind(), StepKind::kFetch);
}

TEST(StageMatrices, PlansOfTheHybridPlannersSurviveTheTripThroughText) {
  int moved = 0;
  for (const char* planner : {"keep_all", "chen_greedy", "vdnn", "capuchin"}) {
    for (const char* name : {"VGG16", "vgg_unet", "MobileNet"}) {
      SCOPED_TRACE(std::string(planner) + " on " + name);
      const Graph graph = zoo_graph(name, {.batch = 4}).value();
      const Simulation whole = search::solve("keep_all", {.graph = &graph}).value().simulation;
      const Bytes least = structural_bound(graph).bytes;
      const Bytes budget = least + (whole.peak_bytes - least) / 2;
      const Link link{.to_host = 1, .to_device = 1, .both = 2};
      const auto outcome =
          search::solve(planner, {.graph = &graph, .link = link, .budget = budget}).value();
      ASSERT_TRUE(outcome.plan.has_value());
      const StageMatrices first = matrices_from_plan(graph, *outcome.plan).value();
      const std::string folder =
          (std::filesystem::path(::testing::TempDir()) / (std::string("m_") + planner + name))
              .string();
      ASSERT_TRUE(write_stage_matrices(first, folder).ok());
      const StageMatrices read = read_stage_matrices(folder).value();
      EXPECT_EQ(read, first);
      const Plan plan = plan_from_matrices(graph, read).value();
      const auto validation = validate(graph, plan);
      ASSERT_TRUE(validation.ok()) << validation.error().message;
      const Simulation simulation = simulate(graph, plan, {.link = link}).value();
      EXPECT_EQ(simulation.compute_cost, outcome.simulation.compute_cost);
      EXPECT_EQ(simulation.offloaded_bytes, outcome.simulation.offloaded_bytes);
      EXPECT_EQ(simulation.fetched_bytes, outcome.simulation.fetched_bytes);
      // Once in the form of stages, nothing changes any more.
      const StageMatrices again = matrices_from_plan(graph, plan).value();
      EXPECT_EQ(matrices_from_plan(graph, plan_from_matrices(graph, again).value()).value(), again);
      EXPECT_EQ(again.r, first.r);
      EXPECT_EQ(again.p, first.p);
      EXPECT_EQ(again.q, first.q);
      moved += simulation.offloaded_bytes > 0 ? 1 : 0;
      std::filesystem::remove_all(folder);
    }
  }
  EXPECT_GE(moved, 3);
}

TEST(StageMatrices, NumbersAreReadAsNumpyWritesThem) {
  EXPECT_EQ(matrix("1.000e+00 0.0\r\n1, 1\n\n"), matrix("1 0\n1 1"));
}

TEST(StageMatrices, BadTextIsRefusedWithItsPlace) {
  const auto error_of = [](const std::string& text) {
    return parse_stage_matrix(text, "R.txt").error().message;
  };
  EXPECT_EQ(error_of("1 0\n2 1\n"), "R.txt: line 2: column 1: '2', expected 0 or 1");
  EXPECT_EQ(error_of("1 0\n1\n"),
            "R.txt: line 2: 1 entries, expected 2, as many as there are lines");
  EXPECT_THAT(error_of("1 1\n0 1\n"), HasSubstr("line 1: column 2: 1 above the diagonal"));
  EXPECT_THAT(error_of(" \n"), HasSubstr("no rows"));
  const Graph graph = small_graph();
  StageMatrices matrices{.r = StageMatrix(3), .p = StageMatrix(3), .q = StageMatrix(3)};
  EXPECT_THAT(plan_from_matrices(graph, matrices).error().message,
              HasSubstr("matrix R has 3 rows, expected 4"));
  matrices = {.r = StageMatrix(4), .p = StageMatrix(4), .q = StageMatrix(4)};
  EXPECT_THAT(plan_from_matrices(graph, matrices).error().message, HasSubstr("expected 1"));
}

TEST(StageMatrices, PlansThatAreNotInStagesAreRefused) {
  const Graph graph = small_graph();
  Plan plan;
  for (const int op : {0, 1, 1, 2, 3}) {
    plan.steps.push_back(Step::compute(OpId(static_cast<std::size_t>(op))));
  }
  EXPECT_TRUE(matrices_from_plan(graph, plan).ok());  // the second run opens stage 2
  plan.steps.insert(plan.steps.begin() + 2, Step::compute(OpId(1)));
  EXPECT_THAT(matrices_from_plan(graph, plan).error().message, HasSubstr("twice in one stage"));
}

}  // namespace
}  // namespace regen::published
