// Whatever is in the registry: every planner's plan is accepted by the validator, costs what the
// naive interpreter says, and keeps the budget whenever it claims to.
#include <gtest/gtest.h>

#include "regen/models/zoo.h"
#include "regen/plan/addresses.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/published/checkmate/artifact_accounting.h"
#include "regen/published/planner_list.h"
#include "regen/search/registry.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/oracles/naive_interpreter.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

class EveryPlanner : public ::testing::TestWithParam<std::string> {};

void expect_sound(const Graph& graph, const Problem& problem, const Outcome& outcome) {
  const bool claims =
      outcome.status == PlanStatus::kFeasible || outcome.status == PlanStatus::kOptimal;
  if (!outcome.plan) {
    EXPECT_FALSE(claims);
    return;
  }
  const ValidationLimits limits{.budget = claims ? problem.budget : std::nullopt};
  const auto validation = validate(graph, *outcome.plan, limits);
  ASSERT_TRUE(validation.ok()) << validation.error().message;
  const auto naive = testing::interpret(graph, *outcome.plan, problem.link);
  EXPECT_EQ(outcome.simulation.peak_bytes, naive.peak_bytes);
  EXPECT_EQ(outcome.simulation.cost, naive.makespan);
  // A plan over the budget may cost less than any that fits.
  EXPECT_TRUE(!claims || outcome.lower_bound <= outcome.simulation.cost);
}

// A planner without limits ends by itself or after its own default, which for `auto` is seconds: most
// graphs are planned with a little work, so that the searches end in all their states.
Limits limits_of(std::uint64_t seed) {
  return seed % 10 == 0 ? Limits{} : Limits{.work = 10'000 * static_cast<std::int64_t>(seed % 10)};
}

TEST_P(EveryPlanner, IsSoundOnRandomGraphs) {
  int feasible = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    Problem problem{.graph = &graph};
    const Bytes bound = structural_bound(graph).bytes;
    if (seed % 3 != 0) problem.budget = bound + random.between(-2, 60);
    if (seed % 2 != 0) problem.link = {.to_host = 4, .to_device = 2, .both = 4};
    const auto outcome = solve(GetParam(), problem, limits_of(seed));
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    if (problem.budget && *problem.budget < bound) {
      EXPECT_EQ(outcome->status, PlanStatus::kInfeasible);
    }
    expect_sound(graph, problem, *outcome);
    feasible +=
        outcome->status == PlanStatus::kFeasible || outcome->status == PlanStatus::kOptimal ? 1 : 0;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(feasible, 300);  // the budgets are not all too small to say anything
}

// Ranks that plan alone must come to the same plan, and experiments to the same rows.
TEST_P(EveryPlanner, TheSameWorkGivesTheSamePlan) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_training_graph(
        random, {.min_layers = 8, .max_layers = 30, .max_bytes = 50});
    Problem problem{.graph = &graph, .budget = structural_bound(graph).bytes + 100};
    if (seed % 2 != 0) problem.link = {.to_host = 4, .to_device = 2, .both = 4};
    const auto first = solve(GetParam(), problem, {.work = 60'000});
    const auto second = solve(GetParam(), problem, {.work = 60'000});
    ASSERT_EQ(first.ok(), second.ok());
    if (!first.ok()) continue;
    EXPECT_EQ(first->status, second->status);
    EXPECT_EQ(first->work, second->work);
    EXPECT_EQ(first->lower_bound, second->lower_bound);
    ASSERT_EQ(first->plan.has_value(), second->plan.has_value());
    if (first->plan) {
      EXPECT_EQ(first->plan->steps, second->plan->steps);
    }
  }
}

TEST_P(EveryPlanner, IsSoundOnRealNetworksInBothBackwardStyles) {
  for (const char* name : {"MobileNet", "vgg_unet", "ResNet50", "bert_base"}) {
    for (const BackwardStyle style : {BackwardStyle::kCheckmate, BackwardStyle::kExact}) {
      SCOPED_TRACE(name);
      const auto graph = zoo_graph(name, {.batch = 2, .backward = style});
      ASSERT_TRUE(graph.ok()) << graph.error().message;
      const Problem problem{.graph = &*graph};
      const auto outcome = solve(GetParam(), problem);
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      ASSERT_TRUE(outcome->plan.has_value());
      const auto validation = validate(*graph, *outcome->plan);
      ASSERT_TRUE(validation.ok()) << validation.error().message;
      EXPECT_EQ(validation->peak_bytes, outcome->simulation.peak_bytes);
      EXPECT_GE(outcome->simulation.peak_bytes, structural_bound(*graph).bytes);
    }
  }
}

TEST_P(EveryPlanner, PlansCanBeGivenAddresses) {
  int packed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random);
    const auto outcome = solve(GetParam(), {.graph = &graph});
    ASSERT_TRUE(outcome.ok());
    if (!outcome->plan) continue;
    ++packed;
    const auto addressed = with_addresses(graph, *outcome->plan);
    ASSERT_TRUE(addressed.ok()) << addressed.error().message;
    const auto validation = validate(graph, addressed->plan);
    ASSERT_TRUE(validation.ok()) << validation.error().message;
    EXPECT_EQ(validation->activation_peak_bytes, addressed->packing.height);
    EXPECT_GE(validation->peak_bytes, outcome->simulation.peak_bytes);
  }
  EXPECT_GT(packed, 100);
}

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const Planner& entry : published::every_planner().planners()) {
    // A bound without plans has tests of its own (checkmate_lp_test.cpp).
    if (entry.name != "lp_bound") list.emplace_back(entry.name);
  }
  return list;
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryPlanner, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

TEST(Registry, RefusesUnknownNamesWithTheList) {
  const auto entry = published::every_planner().find("checkmat");
  ASSERT_FALSE(entry.ok());
  EXPECT_NE(entry.error().message.find("'checkmat'"), std::string::npos);
  EXPECT_NE(entry.error().message.find("chen_sqrt"), std::string::npos);
}

TEST(Registry, IgnoresLetterCase) {
  EXPECT_EQ((*published::every_planner().find("Chen_Greedy"))->name, "chen_greedy");
}

TEST(Solve, ABudgetBelowTheStructuralBoundIsInfeasibleAndSaysWhy) {
  const Graph graph = zoo_graph("VGG19").value();
  const Bytes bound = structural_bound(graph).bytes;
  EXPECT_EQ(bound, graph.fixed_bytes() + 51'380'224);
  const auto at_bound = solve("chen_greedy", {.graph = &graph, .budget = bound});
  EXPECT_EQ(at_bound->status, PlanStatus::kFeasible);
  const auto below = solve("chen_greedy", {.graph = &graph, .budget = bound - 1});
  EXPECT_EQ(below->status, PlanStatus::kInfeasible);
  EXPECT_NE(below->note.find("block1_conv"), std::string::npos) << below->note;
}

TEST(Solve, APlanOverTheBudgetIsUnknownNotInfeasible) {
  const Graph graph = zoo_graph("VGG19").value();
  const auto outcome =
      solve("keep_all", {.graph = &graph, .budget = graph.fixed_bytes() + 60'000'000});
  EXPECT_EQ(outcome->status, PlanStatus::kUnknown);
  EXPECT_TRUE(outcome->plan.has_value());
  EXPECT_GT(outcome->simulation.activation_peak_bytes, 60'000'000);
}

TEST(Solve, CheckmateAccountingNeedsAMirroredGraph) {
  const Graph graph = zoo_graph("VGG19", {.backward = BackwardStyle::kExact}).value();
  const auto outcome = solve(
      "keep_all", {.graph = &graph, .options = {.accounting = &published::artifact_accounting()}});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace regen::search
