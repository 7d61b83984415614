// The relaxation against exhaustive search, and its roundings against the budget.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <ostream>

#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/published/options.h"
#include "regen/search/judge.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::published {
namespace {

constexpr std::array kRoundings{Rounding::kSweep, Rounding::kHalf, Rounding::kRandomThreshold,
                                Rounding::kRandomised};

// REGEN_EXHAUSTIVE=1 asks for all.
int how_many(int sample, int all) {
  return std::getenv("REGEN_EXHAUSTIVE") != nullptr ? all : sample;
}

// A plan that is returned keeps its budget, as the validator sees it; false without a plan.
bool expect_within_budget(const search::Problem& problem, const search::Outcome& outcome) {
  if (!outcome.plan) {
    EXPECT_NE(outcome.status, search::PlanStatus::kFeasible);
    EXPECT_NE(outcome.status, search::PlanStatus::kOptimal);
    return false;
  }
  const auto validation = validate(*problem.graph, *outcome.plan, {.budget = problem.budget});
  EXPECT_TRUE(validation.ok()) << validation.error().message;
  EXPECT_EQ(outcome.status, search::PlanStatus::kFeasible);
  EXPECT_LE(outcome.lower_bound, outcome.simulation.cost * (1 + 1e-9));
  return true;
}

void expect_bound_below(const search::Problem& problem, double optimum) {
  const auto outcome = search::solve("lp_bound", problem);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_FALSE(outcome->plan.has_value());
  EXPECT_NE(outcome->status, search::PlanStatus::kInfeasible);
  EXPECT_LE(outcome->lower_bound, optimum * (1 + 1e-9));
}

// How many of the four have a plan.
int expect_roundings_above(search::Problem problem, double optimum) {
  int plans = 0;
  for (const Rounding rounding : kRoundings) {
    problem.options.extra = Options{.rounding = rounding, .samples = 3};
    const auto outcome = search::solve("checkmate_lp", problem);
    if (!outcome.ok()) {
      ADD_FAILURE() << outcome.error().message;
      return plans;
    }
    EXPECT_LE(outcome->lower_bound, optimum * (1 + 1e-9));
    if (!expect_within_budget(problem, *outcome)) continue;
    EXPECT_GE(outcome->simulation.cost, optimum * (1 - 1e-9));
    ++plans;
  }
  return plans;
}

struct Counts {
  int budgets = 0;
  int plans = 0;
};

// At every budget where the optimum changes.
void expect_between_bound_and_roundings(const Graph& graph, bool gradients_again, Counts& counts) {
  for (const regen::testing::Tradeoff& best :
       regen::testing::frontier_tradeoffs(graph, gradients_again)) {
    SCOPED_TRACE("budget " + std::to_string(best.peak));
    search::Problem problem{.graph = &graph, .budget = best.peak + graph.fixed_bytes()};
    problem.options.recompute_gradients = gradients_again;
    expect_bound_below(problem, best.cost);
    counts.plans += expect_roundings_above(problem, best.cost);
    ++counts.budgets;
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(CheckmateLp, TheOptimumLiesBetweenBoundAndRoundings) {
  Counts counts;
  for (int seed = 0; seed < how_many(60, 1000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed) + 2'000'000);
    const bool gradients_again = seed % 2 == 0;
    const auto layers = static_cast<int>(random.between(1, gradients_again ? 4 : 6));
    const Graph graph = regen::testing::random_mirrored_graph(random, layers);
    expect_between_bound_and_roundings(graph, gradients_again, counts);
    if (HasFailure()) return;
  }
  // These budgets are the hardest there are: the optimum needs every byte of them.
  EXPECT_GT(counts.plans, 4 * counts.budgets / 2);
  RecordProperty("budgets", counts.budgets);
  RecordProperty("plans", counts.plans);
}

TEST(CheckmateLp, AChainOfUnitsHasTheOptimumBetween) {
  const auto graph = zoo_graph("chain:8");
  ASSERT_TRUE(graph.ok());
  for (Bytes budget = 4; budget <= 10; ++budget) {
    const search::Problem problem{.graph = &*graph, .budget = budget};
    const auto optimum = search::solve("checkmate", problem);
    ASSERT_TRUE(optimum.ok());
    ASSERT_EQ(optimum->status, search::PlanStatus::kOptimal);
    expect_bound_below(problem, optimum->simulation.cost);
    EXPECT_EQ(expect_roundings_above(problem, optimum->simulation.cost), 4);
  }
}

// Draws once for each of `tries` seeds, at a random budget between what every plan needs and what
// keeping everything takes. Returns how many had a plan.
int expect_random_roundings_within_budget(const Graph& graph, int tries, Random& random) {
  const auto keep_all = search::solve("keep_all", {.graph = &graph});
  if (!keep_all.ok()) std::abort();
  const Bytes low = structural_bound(graph).bytes;
  const Bytes high = std::max(low, keep_all->simulation.peak_bytes);
  int plans = 0;
  for (int i = 0; i < tries; ++i) {
    search::Problem problem{.graph = &graph, .budget = random.between(low, high)};
    const Rounding rounding = i % 2 == 0 ? Rounding::kRandomised : Rounding::kRandomThreshold;
    problem.options.extra = Options{.rounding = rounding, .samples = 1};
    problem.options.seed = random.next();
    SCOPED_TRACE("budget " + std::to_string(*problem.budget) + ", seed " +
                 std::to_string(problem.options.seed));
    const auto outcome = search::solve("checkmate_lp", problem);
    EXPECT_TRUE(outcome.ok());
    if (outcome.ok() && expect_within_budget(problem, *outcome)) ++plans;
  }
  return plans;
}

// 10,000 tries when all are asked for: 8,000 over small graphs, 1,500 on VGG16, 500 on a U-Net.
TEST(CheckmateLp, RandomRoundingsOfRandomGraphsKeepTheBudget) {
  int plans = 0;
  const int graphs = how_many(200, 4000);
  for (int i = 0; i < graphs; ++i) {
    SCOPED_TRACE("graph " + std::to_string(i));
    Random random(static_cast<std::uint64_t>(i) + 3'000'000);
    const Graph graph =
        regen::testing::random_mirrored_graph(random, static_cast<int>(random.between(2, 12)));
    plans += expect_random_roundings_within_budget(graph, 2, random);
    if (HasFailure()) return;
  }
  EXPECT_GT(plans, graphs);  // of twice as many tries
  RecordProperty("plans", plans);
}

struct Network {
  const char* name;
  int sample, all;
};

void PrintTo(const Network& network, std::ostream* out) {
  *out << network.name;
}

class NetworkRoundings : public ::testing::TestWithParam<Network> {};

TEST_P(NetworkRoundings, KeepTheBudget) {
  const auto graph = zoo_graph(GetParam().name);
  ASSERT_TRUE(graph.ok());
  Random random(4'000'000);
  const int tries = how_many(GetParam().sample, GetParam().all);
  const int plans = expect_random_roundings_within_budget(*graph, tries, random);
  EXPECT_GT(plans, tries / 2);
  RecordProperty("plans", plans);
}

INSTANTIATE_TEST_SUITE_P(CheckmateLp, NetworkRoundings,
                         ::testing::Values(Network{"VGG16", 90, 1500},
                                           Network{"vgg_unet", 10, 500}),
                         [](const auto& row) { return std::string(row.param.name); });

}  // namespace
}  // namespace regen::published
