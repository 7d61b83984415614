// `auto` with a host that holds only so many bytes: against all step lists of tiny graphs, against
// every other planner, and with more and more of the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "regen/graph/analysis.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/published/planner_list.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/search/judge.h"
#include "regen/search/registry.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/oracles/step_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostWork = 20'000'000;
constexpr double kTolerance = 1e-9;
constexpr int kPercents[] = {0, 25, 50, 100};

bool claims(const Outcome& outcome) {
  return outcome.status == PlanStatus::kFeasible || outcome.status == PlanStatus::kOptimal;
}

double cost_of(const Outcome& outcome) {
  return claims(outcome) ? outcome.simulation.cost : kInfinity;
}

void expect_within_both_budgets(const Problem& problem, const Outcome& outcome) {
  if (!claims(outcome)) return;
  const ValidationLimits limits{.budget = problem.budget, .host_budget = problem.host_budget};
  const auto validation = validate(*problem.graph, *outcome.plan, limits);
  EXPECT_TRUE(validation.ok()) << validation.error().message;
}

// A tiny network over one link, at a budget at which a plan that may move without limit does move.
struct Case {
  explicit Case(std::uint64_t seed) {
    Random random(testing::first_seed() + seed);
    graph = testing::random_mirrored_graph(random, static_cast<int>(random.between(2, 3)));
    const double rate = static_cast<double>(random.between(1, 4));
    problem = {.graph = &*graph, .link = {rate, rate, 2 * rate}};
    const Bytes least = structural_bound(*graph).bytes;
    const Bytes most = live_bytes_keep_all(*graph).peak_bytes;
    problem.budget = random.between(least, std::max(least, most - 1));
    problem.options.recompute_gradients = random.chance(0.5);
    problem.options.keep_order = true;  // as all lists do that are searched
  }

  std::optional<Graph> graph;
  Problem problem;
};

// True if no list is cheaper than the cost, false if that is too much to say.
bool expect_no_cheaper_list(const Problem& problem, double cost) {
  const testing::StepLimits limits{.budget = *problem.budget - problem.graph->fixed_bytes(),
                                   .host_budget = problem.host_budget,
                                   .link = problem.link,
                                   .gradients_again = problem.options.recompute_gradients};
  const auto oracle = testing::cheapest_step_list(*problem.graph, limits, cost, kMostWork);
  EXPECT_FALSE(oracle.complete && oracle.cost) << "a list costs " << *oracle.cost;
  return oracle.complete;
}

TEST(HostBudget, TheBestPlanOfTinyGraphsAtEveryShareOfTheNeed) {
  const int wanted = testing::exhaustive() ? 300 : 25;
  int moved = 0;
  int compared = 0;
  int between = 0;  // a part of the need is worth something, and less than all of it
  for (std::uint64_t seed = 0; moved < wanted; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Case tiny(seed);
    const Outcome unlimited = *solve("auto", tiny.problem);
    const Bytes need = unlimited.simulation.host_peak_bytes;
    if (!claims(unlimited) || need == 0) continue;
    ++moved;
    double last = kInfinity;
    double first = 0;
    for (const int percent : kPercents) {
      SCOPED_TRACE("percent " + std::to_string(percent));
      Problem problem = tiny.problem;
      problem.host_budget = need * percent / 100;
      const Outcome outcome = *solve("auto", problem);
      const Outcome exact = *solve("str", problem);
      expect_within_both_budgets(problem, outcome);
      const double cost = cost_of(outcome);
      EXPECT_DOUBLE_EQ(cost, cost_of(exact));
      EXPECT_LE(cost, last);
      compared += expect_no_cheaper_list(problem, cost);
      Effort effort;
      const double bound = covering_bound(*problem.graph, problem.link, *problem.budget, effort,
                                          *problem.host_budget)
                               .cost;
      EXPECT_LE(bound, cost * (1 + kTolerance));
      if (percent == 0) first = cost;
      between += percent == 50 && cost < first && cost > unlimited.simulation.cost;
      last = cost;
    }
    EXPECT_DOUBLE_EQ(last, unlimited.simulation.cost);
  }
  EXPECT_GT(compared, wanted * 3);  // of four for each
  EXPECT_GT(between, 0);
}

// In slices, which can run side by side.
constexpr std::uint64_t kSlices = 5;
class HostBudgetAgainstAll : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(HostBudgetAgainstAll, IsNeverWorseAndNeverOver) {
  int compared = 0;
  const std::uint64_t seeds = testing::exhaustive() ? 200 : 15;
  for (std::uint64_t seed = GetParam(); seed < seeds; seed += kSlices) {
    Random random(testing::first_seed() + seed);
    const Graph graph = testing::random_mirrored_graph(random, 4 + static_cast<int>(seed % 4));
    const Bytes low = structural_bound(graph).bytes;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    Problem problem{.graph = &graph, .link = {4, 2, 4}, .budget = (2 * low + high) / 3};
    const Outcome unlimited = *solve("auto", problem, {.work = 1'500'000});
    if (!claims(unlimited)) continue;
    const Bytes need = unlimited.simulation.host_peak_bytes;
    for (const int percent : kPercents) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " percent " + std::to_string(percent));
      problem.host_budget = need * percent / 100;
      const Outcome mine = *solve("auto", problem, {.work = 1'500'000});
      expect_within_both_budgets(problem, mine);
      for (const Planner& entry : published::every_planner().planners()) {
        const auto other = solve(entry.name, problem, {.work = 100'000});
        if (!other.ok() || !claims(*other)) continue;
        ++compared;
        EXPECT_LE(cost_of(mine), other->simulation.cost * (1 + kTolerance)) << entry.name;
      }
    }
  }
  EXPECT_GT(compared, 50);
}

INSTANTIATE_TEST_SUITE_P(Slices, HostBudgetAgainstAll, ::testing::Range<std::uint64_t>(0, kSlices));

// What two searches with the same counted work may differ by where none is exact.
constexpr double kSearchNoise = 0.002;

// Too large for the exact planners to help: what the local search makes of a part of the host.
TEST(HostBudget, MoreOfTheHostIsNeverMoreExpensive) {
  const Graph graph = *zoo_graph("MobileNet");
  const Bytes budget = live_bytes_keep_all(graph).peak_bytes / 2;
  Problem problem{.graph = &graph, .link = {0.02, 0.02, 0.04}, .budget = budget};
  const Limits limits{.work = 3'000'000};  // local search has had its turns by then
  const Outcome unlimited = *solve("auto", problem, limits);
  ASSERT_TRUE(claims(unlimited));
  const Bytes need = unlimited.simulation.host_peak_bytes;
  ASSERT_GT(need, 0);
  double first = kInfinity;
  double last = kInfinity;
  Bytes used = 0;
  for (const int percent : kPercents) {
    problem.host_budget = need * percent / 100;
    const Outcome outcome = *solve("auto", problem, limits);
    ASSERT_TRUE(claims(outcome)) << percent << " " << outcome.note;
    expect_within_both_budgets(problem, outcome);
    EXPECT_LT(outcome.simulation.cost, last * (1 + kSearchNoise)) << percent;
    EXPECT_GE(outcome.simulation.host_peak_bytes, used) << percent;
    EXPECT_GE(outcome.simulation.host_peak_bytes, *problem.host_budget / 2) << percent;
    if (used == 0) first = outcome.simulation.cost;
    last = outcome.simulation.cost;
    used = outcome.simulation.host_peak_bytes;
  }
  EXPECT_LT(last, first);
}

}  // namespace
}  // namespace regen::search
