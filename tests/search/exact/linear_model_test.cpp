// The solver behind our own interface: small programs with answers worked out by hand, bounds that
// hold whatever stops it.
#include "regen/search/exact/linear_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "regen/base/random.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Minimise -5x - 4y - 3z with 2x + 3y + z <= 5, 4x + y + 2z <= 11, 3x + 4y + 2z <= 8 in [0, 10]:
// the optimum is x = 2, z = 1 with -13 (duals 1, 0, 1).
TEST(LinearModel, SolvesARelaxationAndPricesItsBound) {
  LinearModel program;
  for (const double cost : {-5, -4, -3}) program.add_column(cost, 0, 10, false);
  program.add_row(-kInfinity, 5, std::vector<Term>{{0, 2}, {1, 3}, {2, 1}});
  program.add_row(-kInfinity, 11, std::vector<Term>{{0, 4}, {1, 1}, {2, 2}});
  program.add_row(-kInfinity, 8, std::vector<Term>{{0, 3}, {1, 4}, {2, 2}});
  Effort effort;
  const ModelAnswer answer = program.solve_relaxation(effort);
  ASSERT_EQ(answer.status, ModelStatus::kOptimal);
  EXPECT_NEAR(answer.objective, -13, 1e-9);
  EXPECT_NEAR(answer.bound, -13, 1e-9);
  EXPECT_LE(answer.bound, -13);
  EXPECT_NEAR(answer.values[0], 2, 1e-9);
  // A row more: x <= 1 leaves y = 0, z = 2.5 (third row) with -12.5.
  program.add_row(-kInfinity, 1, std::vector<Term>{{0, 1}});
  EXPECT_NEAR(program.solve_relaxation(effort).objective, -12.5, 1e-9);
  EXPECT_GT(effort.work(), 0);
}

// Minimise -x - y with x + y <= 3 in [0, 2]: -3; with x <= 0.5 as well: -2.5.
TEST(LinearModel, ACopyGoesItsOwnWay) {
  LinearModel program;
  for (int i = 0; i < 2; ++i) program.add_column(-1, 0, 2, false);
  program.add_row(-kInfinity, 3, std::vector<Term>{{0, 1}, {1, 1}});
  Effort effort;
  program.solve_relaxation(effort);
  program.set_bounds(1, 0, 2);  // not yet passed to the solver
  LinearModel copy = program;
  copy.add_row(-kInfinity, 0.5, std::vector<Term>{{0, 1}});
  EXPECT_NEAR(copy.solve_relaxation(effort).objective, -2.5, 1e-9);
  EXPECT_NEAR(program.solve_relaxation(effort).objective, -3, 1e-9);
  program.set_bounds(0, 0, 0);
  EXPECT_NEAR(program.solve_relaxation(effort).objective, -2, 1e-9);
  EXPECT_NEAR(copy.solve_relaxation(effort).objective, -2.5, 1e-9);
}

TEST(LinearModel, SaysInfeasible) {
  LinearModel program;
  program.add_column(1, 0, 1, true);
  program.add_row(2, kInfinity, std::vector<Term>{{0, 1}});
  Effort effort;
  EXPECT_EQ(program.solve_relaxation(effort).status, ModelStatus::kInfeasible);
  EXPECT_EQ(program.solve({}, effort).status, ModelStatus::kInfeasible);
}

struct Knapsack {
  std::vector<int> value, weight;
  int room = 0;
};

// The best value by trying every subset.
int best_subset(const Knapsack& k) {
  int best = 0;
  for (unsigned subset = 0; subset < 1u << k.value.size(); ++subset) {
    int value = 0, weight = 0;
    for (std::size_t i = 0; i < k.value.size(); ++i) {
      if (subset >> i & 1) value += k.value[i], weight += k.weight[i];
    }
    if (weight <= k.room) best = std::max(best, value);
  }
  return best;
}

TEST(LinearModel, SolvesKnapsacksToTheirOptimum) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    Knapsack knapsack;
    LinearModel program;
    std::vector<Term> row;
    for (int i = 0; i < 10; ++i) {
      knapsack.value.push_back(static_cast<int>(random.between(1, 30)));
      knapsack.weight.push_back(static_cast<int>(random.between(1, 30)));
      row.push_back({program.add_column(-knapsack.value.back(), 0, 1, true),
                     static_cast<double>(knapsack.weight.back())});
    }
    knapsack.room = static_cast<int>(random.between(10, 100));
    program.add_row(-kInfinity, knapsack.room, row);
    Effort effort;
    const int best = best_subset(knapsack);
    const ModelAnswer relaxed = program.solve_relaxation(effort);
    EXPECT_LE(relaxed.bound, -best + 1e-9);
    // What reduced costs fix no better point can have otherwise.
    program.fix_by_reduced_costs(relaxed, -best + 0.5);
    const ModelAnswer whole = program.solve({}, effort);
    ASSERT_EQ(whole.status, ModelStatus::kOptimal);
    EXPECT_NEAR(whole.objective, -best, 1e-6);
    EXPECT_NEAR(whole.bound, -best, 1e-6);
    // Nothing is better than the best.
    EXPECT_EQ(program.solve({.cutoff = -best - 0.5}, effort).status, ModelStatus::kInfeasible);
  }
}

TEST(LinearModel, AStoppedRelaxationStillHasAValidBound) {
  // A transport-like model of some size, stopped after a few iterations.
  Random random(1);
  LinearModel program;
  for (int c = 0; c < 200; ++c)
    program.add_column(static_cast<double>(random.between(1, 20)), 0, 1, false);
  for (int r = 0; r < 60; ++r) {
    std::vector<Term> row;
    for (int c = 0; c < 200; ++c) {
      if (random.chance(0.1)) row.push_back({c, static_cast<double>(random.between(1, 5))});
    }
    program.add_row(5, kInfinity, row);
  }
  Effort little({.work = 3 * program.work_per_iteration()});
  const ModelAnswer early = program.solve_relaxation(little);
  Effort effort;
  const ModelAnswer full = program.solve_relaxation(effort);
  ASSERT_EQ(full.status, ModelStatus::kOptimal);
  EXPECT_LE(early.bound, full.objective);
  EXPECT_NEAR(full.bound, full.objective, 1e-6);
}

}  // namespace
}  // namespace regen::search
