#include "regen/search/services/plan_curve.h"

#include <gtest/gtest.h>

#include "regen/graph/analysis.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr AddressOptions kOptions{.alignment = 4, .pack_work = 20'000};
constexpr Limits kLimits{.work = 2'000};
constexpr Link kLink{.to_host = 4, .to_device = 2, .both = 4};

Graph graph_number(std::uint64_t seed) {
  Random random(seed);
  return testing::random_training_graph(random, {.max_layers = 8, .max_bytes = 60});
}

PlanCurve curve_of(const Graph& graph, std::initializer_list<std::string_view> planners,
                   std::optional<Bytes> budget = {}) {
  const Problem problem{.graph = &graph, .link = kLink, .budget = budget};
  auto curve = PlanCurve::make(planners_named(planners), problem, kOptions, kLimits);
  EXPECT_TRUE(curve.ok()) << curve.error().message;
  return *curve;
}

// The validator counts bytes and addresses itself, and shares nothing with the planners.
TEST(PlanCurve, EveryPointIsAValidPlanAndMoreBytesMeanLessTime) {
  std::size_t points = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Graph graph = graph_number(seed);
    const PlanCurve curve = curve_of(graph, {"auto"});
    if (curve.plans().empty()) continue;  // an op that no planner can handle
    const Outcome* last = nullptr;
    for (const Outcome& outcome : curve.plans()) {
      const auto valid = validate(graph, *outcome.plan, {.budget = outcome.simulation.peak_bytes});
      ASSERT_TRUE(valid.ok()) << valid.error().message;
      EXPECT_EQ(valid->peak_bytes, outcome.simulation.peak_bytes);
      EXPECT_GE(outcome.simulation.peak_bytes, structural_bound(graph).bytes);
      if (last != nullptr) {
        EXPECT_LT(last->simulation.peak_bytes, outcome.simulation.peak_bytes);
        EXPECT_GT(last->simulation.cost, outcome.simulation.cost);
      }
      last = &outcome;
    }
    EXPECT_LE(last->simulation.cost, graph.base_cost()) << "keeping everything is on it";
    points += curve.plans().size();
  }
  EXPECT_GT(points, 20u);
}

TEST(PlanCurve, KeepsToTheBudget) {
  int with_points = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const Graph graph = graph_number(seed);
    const Bytes everything = live_bytes_keep_all(graph).peak_bytes;
    const Bytes budget = (structural_bound(graph).bytes + 3 * everything) / 4;
    const PlanCurve curve = curve_of(graph, {"auto"}, budget);
    for (const Outcome& outcome : curve.plans()) EXPECT_LE(outcome.simulation.peak_bytes, budget);
    with_points += !curve.plans().empty();
    EXPECT_TRUE(curve_of(graph, {"auto"}, structural_bound(graph).bytes - 1).plans().empty());
  }
  EXPECT_GT(with_points, 2);
}

TEST(PlanCurve, OfKeepingEverythingIsOnePoint) {
  const Graph graph = graph_number(3);
  EXPECT_EQ(curve_of(graph, {"keep_all"}).plans().size(), 1u);
  EXPECT_EQ(curve_of(graph, {"keep_all"}, structural_bound(graph).bytes).plans().size(), 0u);
}

Outcome made_up(Bytes bytes, double cost) {
  Outcome outcome;
  outcome.simulation.peak_bytes = bytes;
  outcome.simulation.cost = cost;
  return outcome;
}

// Against all that was ever added.
TEST(PlanCurve, GivesTheQuickestOfAllWithinTheBytes) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    PlanCurve curve;
    std::vector<std::pair<Bytes, double>> all;
    for (int i = 0; i < 12; ++i) {
      all.emplace_back(random.between(1, 20), static_cast<double>(random.between(1, 20)));
      curve.add(made_up(all.back().first, all.back().second));
      for (Bytes bytes = 0; bytes <= 22; ++bytes) {
        std::optional<double> best;
        for (const auto& [size, cost] : all) {
          if (size <= bytes) best = std::min(best.value_or(cost), cost);
        }
        const Outcome* found = curve.within(bytes);
        ASSERT_EQ(found != nullptr, best.has_value());
        if (best) {
          EXPECT_EQ(found->simulation.cost, *best);
        }
      }
    }
  }
}

}  // namespace
}  // namespace regen::search
