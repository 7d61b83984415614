// The price of memory against the bound itself, solved at other budgets, and against prices worked
// out by hand.
#include "regen/search/bounds/shadow_prices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "regen/plan/explain.h"
#include "tests/support/graphs/random_graph.h"

namespace regen::search {
namespace {

ShadowPrice price(const Graph& graph, Bytes budget, Bytes more = 0, const Link& link = {}) {
  Effort effort;
  return price_memory(graph, link, budget, more, effort);
}

double bound(const Graph& graph, Bytes budget, const Link& link = {}) {
  Effort effort;
  return covering_bound(graph, link, budget, effort).cost;
}

// a and b are made first and read last; n is the op where memory is short.
//
//   op         a     b     m     n (reads m)  y (reads a, b, n)
//   bytes   4000  1000  6000            10                 10
//   cost       8     1     1             1                  1
//
// With everything kept, 11000 bytes are live at m, 11010 at n and 5020 at y; n reads neither a nor
// b.
struct ByHand {
  Graph graph;
  TensorId a, b;
};

ByHand by_hand() {
  ByHand made;
  GraphBuilder builder("by hand", CostUnit::kSecond);
  const auto op = [&](const char* name, std::vector<TensorId> inputs, Bytes bytes, double cost,
                      TensorKind kind = TensorKind::kActivation) {
    return builder.add_simple_op(name, "op", Phase::kForward, std::move(inputs), bytes, kind, cost);
  };
  made.a = op("a", {}, 4000, 8);
  made.b = op("b", {}, 1000, 1);
  const TensorId m = op("m", {}, 6000, 1);
  const TensorId n = op("n", {m}, 10, 1);
  op("y", {made.a, made.b, n}, 10, 1, TensorKind::kOutput);
  made.graph = std::move(builder).build().value();
  return made;
}

// 500 bytes over at n. A byte of b costs 1 / 1000 to make again, one of a 8 / 4000, so half of b
// goes.
TEST(ShadowPrice, IsWhatTheLastByteCostsByHand) {
  const ByHand made = by_hand();
  const ShadowPrice found = price(made.graph, 10'510, /*more=*/400);
  EXPECT_DOUBLE_EQ(found.least_cost, 12);
  EXPECT_NEAR(found.bound, 12.5, 1e-9);
  EXPECT_NEAR(found.per_byte, 1.0 / 1000, 1e-12);
  EXPECT_NEAR(found.bound_with_more, 12.1, 1e-9);
  EXPECT_NEAR(found.saved_with_more(), 0.4, 1e-9);
  ASSERT_EQ(found.rows.size(), 1u);
  EXPECT_EQ(made.graph.name(found.rows[0].op), "n");
  EXPECT_EQ(found.rows[0].live_bytes, 11'010);
  EXPECT_NEAR(found.rows[0].dropped_bytes, 500, 1e-6);
  EXPECT_NEAR(found.rows[0].away_bytes, 0, 1e-6);
}

// b pays, as holding it costs what making it again does; a does not: holding it costs 4 of 8.
TEST(ShadowPrice, NamesWhoPays) {
  const ByHand made = by_hand();
  const ShadowPrice found = price(made.graph, 10'510);
  const std::vector<Tenant> tenants = tenants_at(made.graph, found, OpId(3));
  ASSERT_EQ(tenants.size(), 2u);
  EXPECT_EQ(tenants[0].tensor, made.b);
  EXPECT_NEAR(tenants[0].dropped, 0.5, 1e-9);
  EXPECT_NEAR(tenants[0].rent, 1, 1e-9);
  EXPECT_DOUBLE_EQ(tenants[0].again_cost, 1);
  EXPECT_EQ(tenants[1].tensor, made.a);
  EXPECT_NEAR(tenants[1].dropped, 0, 1e-9);
  EXPECT_NEAR(tenants[1].rent, 4, 1e-9);
  EXPECT_DOUBLE_EQ(tenants[1].again_cost, 8);
}

// 3000 over: all of b goes and half of a. 2500 bytes more save 2000 at 1 / 500 and 500 at 1 / 1000.
TEST(ShadowPrice, HoldsForTheNextByteOnly) {
  const ShadowPrice found = price(by_hand().graph, 8010, /*more=*/2500);
  EXPECT_NEAR(found.bound, 12 + 1 + 4, 1e-9);
  EXPECT_NEAR(found.per_byte, 1.0 / 500, 1e-12);
  EXPECT_NEAR(found.saved_with_more(), 4.5, 1e-9);
  EXPECT_NEAR(found.saved_at_most(), 5, 1e-9);
}

// 10 units of cost lie before n and 2 from n on, so that 100 bytes could leave before it and 40
// come back after, and 20 for each unit of overhead: 1000 x + 40 + 20 x = 500.
TEST(ShadowPrice, KnowsWhatTheLinkCarries) {
  const Link link{.to_host = 10, .to_device = 20, .both = 30};
  const ShadowPrice found = price(by_hand().graph, 10'510, 0, link);
  EXPECT_NEAR(found.bound, 12 + 460.0 / 1020, 1e-9);
  EXPECT_NEAR(found.per_byte, 1.0 / 1020, 1e-12);
  ASSERT_EQ(found.rows.size(), 1u);
  EXPECT_NEAR(found.rows[0].away_bytes, 40 + 20 * 460.0 / 1020, 1e-6);
}

TEST(ShadowPrice, IsZeroWhereTheBudgetDoesNotBind) {
  const ShadowPrice found = price(by_hand().graph, 11'010, /*more=*/1000);
  EXPECT_FALSE(found.binds());
  EXPECT_EQ(found.per_byte, 0);
  EXPECT_EQ(found.bound, 12);
  EXPECT_EQ(found.saved_with_more(), 0);
  EXPECT_TRUE(found.rows.empty());
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random);
    const ShadowPrice kept = price(graph, live_bytes_keep_all(graph).peak_bytes);
    EXPECT_EQ(kept.per_byte, 0) << seed;
    EXPECT_EQ(kept.bound, kept.least_cost) << seed;
  }
}

// The bound is convex in the budget: its slope to the left is at least the price, that to the right
// at most. Where both are the same, which is where the basis of the model stays, it is the price.
TEST(ShadowPrice, IsTheSlopeOfTheBound) {
  constexpr Bytes kStep = 5000;  // rows may be broken by some bytes (covering_bound.cpp)
  constexpr double kSlack = 0.01;
  int equal = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Graph graph =
        testing::random_training_graph(random, {.max_layers = 8, .max_bytes = 1'000'000});
    const Link link = seed % 3 == 0 ? Link{40'000, 30'000, 50'000} : Link{};
    const Bytes low = structural_bound(graph).bytes + kStep;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    for (int point = 0; point < 3 && low < high; ++point) {
      const Bytes budget = low + (high - low) * point / 3;
      const ShadowPrice found = price(graph, budget, 0, link);
      const double left = bound(graph, budget - kStep, link) - found.bound;
      const double right = found.bound - bound(graph, budget + kStep, link);
      if (std::isinf(left) || std::isinf(found.bound)) continue;
      const double step_price = found.per_byte * static_cast<double>(kStep);
      EXPECT_GE(found.per_byte, 0);
      EXPECT_LE(step_price * (1 - kSlack), left + 1e-9) << "seed " << seed << " at " << budget;
      EXPECT_GE(step_price * (1 + kSlack), right - 1e-9) << "seed " << seed << " at " << budget;
      if (right > 1e-6 && left - right < kSlack * left) {
        EXPECT_NEAR(step_price, right, 2 * kSlack * right) << "seed " << seed << " at " << budget;
        ++equal;
      }
    }
  }
  EXPECT_GT(equal, 50);
}

TEST(ShadowPrice, TheSumOverRowsIsThePrice) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    const ShadowPrice found = price(graph, structural_bound(graph).bytes);
    double sum = 0;
    for (std::size_t i = 0; i < found.rows.size(); ++i) {
      sum += found.rows[i].price;
      EXPECT_GT(found.rows[i].price, 0);
      EXPECT_LE(found.rows[i].price, found.rows[i == 0 ? 0 : i - 1].price);
    }
    EXPECT_DOUBLE_EQ(sum, found.per_byte);
  }
}

// Stopped before anything was solved, the bound is that every op runs.
TEST(ShadowPrice, WithoutEffortSaysOnlyWhatIsKnown) {
  const Graph graph = by_hand().graph;
  Effort none(Limits{.work = 0});
  const ShadowPrice found = price_memory(graph, {}, 8010, 100, none);
  EXPECT_EQ(found.bound, 12);
  EXPECT_EQ(found.per_byte, 0);
}

}  // namespace
}  // namespace regen::search
