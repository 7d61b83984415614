// The planners that recompute and move: what each rule does on graphs one can follow by hand, and
// what holds for all of them on random ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/published/options.h"
#include "regen/search/exact/transfer_model.h"
#include "regen/search/judge.h"
#include "regen/search/local/interval_evaluator.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/oracles/naive_interpreter.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

using ::testing::HasSubstr;

bool claims(const Outcome& outcome) {
  return outcome.status == PlanStatus::kFeasible || outcome.status == PlanStatus::kOptimal;
}

// Forward ops a, b, c of 4, 2 and 2 bytes and a cost of 4 each, the loss, and gradients of 0 bytes
// in the reverse order, each reading its value; b is free from 8 (c has read it) to 16, a from 8 (b
// has) to 20.
//
//   time   0  4  8  12   13  17  21
//          a  b  c  loss gc  gb  ga        kept: 8 bytes at c
Graph three_layers() {
  GraphBuilder builder("three");
  const auto add = [&](const char* name, Phase phase, std::vector<TensorId> inputs, Bytes bytes,
                       double cost) {
    return builder.add_simple_op(name, "op", phase, std::move(inputs), bytes,
                                 TensorKind::kActivation, cost);
  };
  const TensorId a = add("a", Phase::kForward, {}, 4, 4);
  const TensorId b = add("b", Phase::kForward, {a}, 2, 4);
  const TensorId c = add("c", Phase::kForward, {b}, 2, 4);
  const TensorId loss = add("loss", Phase::kLoss, {c}, 0, 1);
  const TensorId gc = add("gc", Phase::kBackward, {loss, c}, 0, 4);
  const TensorId gb = add("gb", Phase::kBackward, {gc, b}, 0, 4);
  add("ga", Phase::kBackward, {gb, a}, 0, 4);
  return std::move(builder).build().value();
}

// a is free longest. At 1 byte for each unit its copies take 4 + 4 of the 13 units between 8 and
// 21; c needs 2 bytes when it runs at 8, where a's copy, made beside b, has ended: no stall.
TEST(Capuchin, SwapsWhatIsFreeLongestWhileTheLinkHasRoom) {
  const Graph graph = three_layers();
  const Link link{.to_host = 1, .to_device = 1, .both = 2};
  const auto outcome = solve("capuchin", {.graph = &graph, .link = link, .budget = 6}).value();
  ASSERT_EQ(outcome.status, PlanStatus::kFeasible) << outcome.note;
  EXPECT_EQ(outcome.simulation.offloaded_bytes, 4);
  EXPECT_EQ(outcome.simulation.recomputed, 0U);
  EXPECT_EQ(outcome.simulation.cost, graph.base_cost());
}

// At a quarter of a byte for each unit a's copies alone take 32 units: the link is full at once,
// and a, whose op costs 4, is made again. The exact planner does the same.
TEST(Capuchin, RecomputesWhenTheLinkIsFull) {
  const Graph graph = three_layers();
  const Link link{.to_host = 0.25, .to_device = 0.25, .both = 0.5};
  for (const char* planner : {"capuchin", "str"}) {
    const auto outcome = solve(planner, {.graph = &graph, .link = link, .budget = 6}).value();
    ASSERT_TRUE(claims(outcome)) << outcome.note;
    EXPECT_EQ(outcome.simulation.offloaded_bytes, 0) << planner;
    EXPECT_EQ(outcome.simulation.cost, graph.base_cost() + 4) << planner;
  }
}

class SwapPlanner : public ::testing::TestWithParam<const char*> {};

TEST_P(SwapPlanner, MovesNothingWithoutALinkOrWithoutHostBytes) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_mirrored_graph(random, 4);
    Problem problem{.graph = &graph,
                    .budget = structural_bound(graph).bytes + random.between(0, 20)};
    const auto alone = solve(GetParam(), problem).value();
    EXPECT_EQ(alone.simulation.offloaded_bytes, 0);
    problem.link = {.to_host = 2, .to_device = 2, .both = 4};
    problem.host_budget = 0;
    const auto no_host = solve(GetParam(), problem).value();
    EXPECT_EQ(no_host.simulation.offloaded_bytes, 0);
    EXPECT_EQ(no_host.status, alone.status);
    EXPECT_EQ(no_host.simulation.cost, alone.simulation.cost);
  }
}

TEST_P(SwapPlanner, KeepsBothBudgetsItClaims) {
  int claimed = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_training_graph(random);
    Problem problem{.graph = &graph,
                    .link = {.to_host = 4, .to_device = 2, .both = 5},
                    .budget = structural_bound(graph).bytes + random.between(0, 60)};
    if (random.chance(0.5)) problem.host_budget = random.between(0, 40);
    const auto outcome = solve(GetParam(), problem).value();
    if (!claims(outcome)) continue;
    ++claimed;
    const ValidationLimits limits{.budget = problem.budget, .host_budget = problem.host_budget};
    const auto validation = validate(graph, *outcome.plan, limits);
    ASSERT_TRUE(validation.ok()) << validation.error().message;
    EXPECT_DOUBLE_EQ(outcome.simulation.cost,
                     testing::interpret(graph, *outcome.plan, problem.link).makespan);
  }
  EXPECT_GT(claimed, 150);
}

INSTANTIATE_TEST_SUITE_P(All, SwapPlanner,
                         ::testing::Values("superneurons", "capuchin", "str_lp", "str"),
                         [](const auto& planner) { return std::string(planner.param); });

TEST(StrLp, ReturnsPlansWithinTheBudgetOrNone) {
  for (const double part : {0.5, 0.7, 0.9}) {
    const Graph graph = zoo_graph("VGG16", {.batch = 8}).value();
    const Simulation whole = solve("keep_all", {.graph = &graph}).value().simulation;
    const Problem problem{
        .graph = &graph,
        .link = {.to_host = 0.01, .to_device = 0.01, .both = 0.02},
        .budget = graph.fixed_bytes() +
                  static_cast<Bytes>(part * static_cast<double>(whole.activation_peak_bytes))};
    const auto outcome = solve("str_lp", problem, {.work = 100'000'000}).value();
    if (!outcome.plan) continue;
    EXPECT_TRUE(claims(outcome)) << outcome.note;
    EXPECT_LE(outcome.simulation.peak_bytes, *problem.budget);
    EXPECT_LE(outcome.lower_bound, outcome.simulation.cost);
  }
}

TEST(Str, TheSameCountedWorkGivesTheSamePlanAndBound) {
  const Graph graph = zoo_graph("vgg_unet", {.batch = 1}).value();
  const Problem problem{.graph = &graph,
                        .link = {.to_host = 0.002, .to_device = 0.002, .both = 0.0035},
                        .budget = graph.fixed_bytes() + 450'000'000};
  const auto first = solve("str", problem, {.work = 3'000'000}).value();
  const auto second = solve("str", problem, {.work = 3'000'000}).value();
  ASSERT_TRUE(first.plan && second.plan);
  EXPECT_TRUE(claims(first));
  EXPECT_EQ(first.plan->steps, second.plan->steps);
  EXPECT_EQ(first.lower_bound, second.lower_bound);
}

TEST(Str, IsNeverWorseThanCapuchinAndVdnn) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    const Problem problem{.graph = &graph,
                          .link = {.to_host = 2, .to_device = 2, .both = 3},
                          .budget = structural_bound(graph).bytes + random.between(0, 60)};
    const auto ours = solve("str", problem).value();
    for (const char* other : {"capuchin", "vdnn", "keep_all", "chen_greedy"}) {
      const auto theirs = solve(other, problem).value();
      if (!claims(theirs)) continue;
      ASSERT_TRUE(claims(ours)) << other;
      EXPECT_LE(ours.simulation.cost, theirs.simulation.cost) << other;
    }
  }
}

// Whatever is held, moved and dropped: the decisions that are read off the plan give a plan that is
// worth the same, and the evaluator says of it what the judge says.
TEST(IntervalEvaluator, OfAPlanThatMovesGivesThePlan) {
  std::size_t moves = 0;
  std::size_t fitting = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_mirrored_graph(random, 6);
    Problem problem{.graph = &graph,
                    .link = {.to_host = 2, .to_device = 2, .both = 3},
                    .budget = structural_bound(graph).bytes + random.between(0, 30)};
    problem.options.recompute_gradients = false;
    const IntervalSpace space(problem);
    Decisions decisions = space.model.keep_everything();
    for (IntervalId g = 0; g < space.model.size(); ++g) {
      if (space.model.last(g)) continue;
      if (random.chance(0.4)) decisions[g] = Holding::kMoved;
      if (space.model.droppable(g) && random.chance(0.3)) decisions[g] = Holding::kDropped;
    }
    const IntervalPlan made = evaluate(space, decisions, *problem.budget);
    const Plan plan{.steps = steps_of(graph, made)};
    const auto judged = simulate(graph, plan, {.link = problem.link});
    ASSERT_TRUE(judged.ok()) << judged.error().message;
    EXPECT_EQ(made.peak_bytes, judged->peak_bytes);
    if (!made.fits) continue;
    ++fitting;
    EXPECT_EQ(made.cost, judged->cost);
    const auto read = space.model.read_plan(plan);
    ASSERT_TRUE(read);
    const IntervalPlan again = evaluate(space, *read, *problem.budget);
    EXPECT_EQ(again.cost, made.cost);
    EXPECT_EQ(again.peak_bytes, made.peak_bytes);
    moves += judged->offloaded_bytes > 0;
  }
  EXPECT_GT(fitting, 100U);
  EXPECT_GT(moves, 20U);
}

TEST(Str, GoesOnFromThePlanItIsGivenIfThatIsForTheGraph) {
  const Graph graph = zoo_graph("vgg_unet", {.batch = 1}).value();
  Problem problem{.graph = &graph,
                  .link = {.to_host = 0.002, .to_device = 0.002, .both = 0.0035},
                  .budget = graph.fixed_bytes() + 300'000'000};
  const auto known = solve("str", problem, {.work = 3'000'000}).value();
  const auto short_of_work = solve("str", problem, {.work = 1}).value();
  ASSERT_TRUE(claims(known));
  Plan start = *known.plan;
  start.fingerprint = graph.fingerprint();
  problem.start = &start;
  const auto gone_on = solve("str", problem, {.work = 1}).value();
  ASSERT_TRUE(claims(gone_on));
  EXPECT_LE(gone_on.simulation.cost, known.simulation.cost);
  EXPECT_LT(gone_on.simulation.cost, short_of_work.simulation.cost);
  ++start.fingerprint;
  EXPECT_EQ(solve("str", problem, {.work = 1}).value().simulation.cost,
            short_of_work.simulation.cost);
}

// The published model prices no copy: on a link of a thousandth of a byte it finds none hidden.
TEST(StrPublished, RecomputesWhereNoSwapIsHidden) {
  const Graph graph = three_layers();
  Problem problem{
      .graph = &graph, .link = {.to_host = 0.001, .to_device = 0.001, .both = 0.002}, .budget = 6};
  problem.options.extra = published::Options{.model = published::PlanningModel::kPublished};
  const auto outcome = solve("str", problem).value();
  ASSERT_EQ(outcome.status, PlanStatus::kFeasible) << outcome.note;
  EXPECT_EQ(outcome.simulation.offloaded_bytes, 0);
  EXPECT_EQ(outcome.simulation.recomputed, 1U);
  EXPECT_THAT(outcome.note, HasSubstr("optimal at 29"));
}

// Copies cost it nothing, so that it may move more than it must.
TEST(StrPublished, SwapsWhatItTakesForHidden) {
  const Graph graph = three_layers();
  Problem problem{.graph = &graph, .link = {.to_host = 1, .to_device = 1, .both = 2}, .budget = 6};
  problem.options.extra = published::Options{.model = published::PlanningModel::kPublished};
  const auto outcome = solve("str", problem).value();
  ASSERT_TRUE(outcome.plan.has_value()) << outcome.note;
  EXPECT_GE(outcome.simulation.offloaded_bytes, 4);
  EXPECT_EQ(outcome.simulation.recomputed, 0U);
}

TEST(StrPublished, RefusesGraphsThatAreTooLarge) {
  const Graph graph = zoo_graph("ResNet50", {}).value();
  Problem problem{.graph = &graph, .budget = Bytes{1} << 40};
  problem.options.extra = published::Options{.model = published::PlanningModel::kPublished};
  const auto outcome = solve("str", problem);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message, HasSubstr("expected at most 96"));
}

}  // namespace
}  // namespace regen::search
