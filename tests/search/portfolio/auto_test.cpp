// The planner that decides everything: never worse than any other, never above the budget, and its
// bound never above the best that exhaustive search finds.
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/published/planner_list.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/search/build/variant_view.h"
#include "regen/search/registry.h"
#include "regen/search/search_trace.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr Link kLink{.to_host = 4, .to_device = 2, .both = 4};

bool claims(const Outcome& outcome) {
  return outcome.status == PlanStatus::kFeasible || outcome.status == PlanStatus::kOptimal;
}

TEST(CoveringBound, IsNeverAboveTheCheapestSchedule) {
  int strict = 0;
  int exact = 0;
  for (std::uint64_t seed = 0; seed < (testing::exhaustive() ? 2000 : 150); ++seed) {
    Random random(testing::first_seed() + seed);
    const Graph graph = testing::random_mirrored_graph(random, 2 + static_cast<int>(seed % 4));
    for (const testing::Tradeoff& best : testing::frontier_tradeoffs(graph, true)) {
      Effort effort;
      const Bytes budget = graph.fixed_bytes() + best.peak;
      const double bound = covering_bound(graph, {}, budget, effort).cost;
      EXPECT_LE(bound, best.cost * (1 + 1e-9)) << "seed " << seed << " budget " << budget;
      EXPECT_GE(bound, graph.base_cost() * (1 - 1e-9));
      strict += bound > graph.base_cost() * (1 + 1e-9);
      exact += bound > best.cost * (1 - 1e-9);
    }
  }
  EXPECT_GT(strict, 100);  // it says more than that every op runs
  EXPECT_GT(exact, 50);
}

// Movement can only make steps cheaper, so the bound with a link is never above that without.
TEST(CoveringBound, AFasterLinkNeverRaisesIt) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(testing::first_seed() + seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    const Bytes budget = structural_bound(graph).bytes + random.between(0, 40);
    double last = std::numeric_limits<double>::infinity();
    for (const double speed : {0.0, 0.5, 2.0, 8.0}) {
      Effort effort;
      const double bound = covering_bound(graph, {speed, speed, 2 * speed}, budget, effort).cost;
      EXPECT_LE(bound, last * (1 + 1e-9)) << "seed " << seed << " speed " << speed;
      last = bound;
    }
  }
}

// In slices, which can run side by side.
constexpr std::uint64_t kSlices = 10;
class AutoAgainstAll : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(AutoAgainstAll, IsNeverWorseThanAnyOtherPlanner) {
  int compared = 0;
  const std::uint64_t seeds = testing::exhaustive() ? 500 : 30;
  for (std::uint64_t seed = GetParam(); seed < seeds; seed += kSlices) {
    Random random(testing::first_seed() + seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 10, .max_bytes = 50});
    const Bytes low = structural_bound(graph).bytes;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    for (int point = 0; point < (testing::exhaustive() ? 12 : 3); ++point) {
      const Bytes budget = low + (high - low) * point / (testing::exhaustive() ? 12 : 3);
      const Problem problem{.graph = &graph, .link = seed % 2 ? kLink : Link{}, .budget = budget};
      const Outcome mine = *solve("auto", problem, {.work = 1'500'000});
      for (const Planner& entry : published::every_planner().planners()) {
        const auto other = solve(entry.name, problem, {.work = 200'000});
        if (!other.ok() || !claims(*other)) continue;
        ++compared;
        EXPECT_TRUE(claims(mine)) << entry.name << " seed " << seed << " budget " << budget;
        EXPECT_LE(mine.simulation.cost, other->simulation.cost * (1 + 1e-9))
            << entry.name << " seed " << seed << " budget " << budget;
      }
      EXPECT_TRUE(!claims(mine) || mine.lower_bound <= mine.simulation.cost * (1 + 1e-9));
    }
  }
  EXPECT_GT(compared, testing::exhaustive() ? 200 : 5);
}

INSTANTIATE_TEST_SUITE_P(Slices, AutoAgainstAll, ::testing::Range<std::uint64_t>(0, kSlices));

TEST(Auto, TheSameWorkGivesTheSamePlan) {
  const Graph graph = *zoo_graph("MobileNet");
  const Bytes budget = live_bytes_keep_all(graph).peak_bytes / 2;
  const Problem problem{.graph = &graph, .link = {0.02, 0.02, 0.04}, .budget = budget};
  const Outcome first = *solve("auto", problem, {.work = 300'000});
  const Outcome second = *solve("auto", problem, {.work = 300'000});
  ASSERT_TRUE(first.plan && second.plan);
  EXPECT_GE(first.work, 300'000);
  EXPECT_EQ(first.plan->steps, second.plan->steps);
}

// A chain whose middle op has a fast way with much workspace and a slow one without.
Graph graph_with_algorithms() {
  GraphBuilder builder("algorithms");
  std::vector<TensorId> values;
  for (int i = 0; i < 3; ++i) {
    const TensorId t = builder.add_tensor({.name = "t" + std::to_string(i), .bytes = 10});
    OpSpec op{.name = "op" + std::to_string(i), .type = "op", .outputs = {t}};
    if (i > 0) op.inputs = {values.back()};
    op.variants = {{.name = "fast", .cost = 1, .workspace = 100}, {.name = "slow", .cost = 3}};
    if (i != 1) op.variants.resize(1), op.variants[0].workspace = 0;
    builder.add_op(std::move(op));
    values.push_back(t);
  }
  return std::move(builder).build().value();
}

// While it lives, the process has one processor.
class OneProcessor {
 public:
  OneProcessor() {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &before_)) ++first;
    CPU_SET(first, &one);
    sched_setaffinity(0, sizeof(one), &one);
  }
  ~OneProcessor() { sched_setaffinity(0, sizeof(before_), &before_); }

 private:
  cpu_set_t before_;
};

TEST(Auto, TheNumberOfProcessorsMakesNoDifference) {
  const Graph graph = *zoo_graph("MobileNet");
  const Bytes budget = live_bytes_keep_all(graph).peak_bytes / 2;
  Problem problem{.graph = &graph, .link = {0.02, 0.02, 0.04}, .budget = budget};
  SearchTrace trace;
  problem.trace = &trace;
  const Outcome all = *solve("auto", problem, {.work = 3'000'000});
  problem.trace = nullptr;
  const OneProcessor one;
  const Outcome alone = *solve("auto", problem, {.work = 3'000'000});
  ASSERT_TRUE(all.plan && alone.plan);
  // It runs on all processors.
  EXPECT_TRUE(std::ranges::any_of(trace.events, [](const SearchEvent& event) {
    return event.source == "local_search" && event.work > 500'000;
  }));
  EXPECT_GE(all.work, 3'000'000);
  EXPECT_EQ(all.plan->steps, alone.plan->steps);
  EXPECT_EQ(all.work, alone.work);
}

TEST(Auto, TakesTheFastestAlgorithmThatFits) {
  const Graph graph = graph_with_algorithms();
  for (const auto& [budget, cost] : {std::pair<Bytes, double>{119, 5}, {120, 3}}) {
    const Outcome outcome = *solve("auto", {.graph = &graph, .budget = budget});
    EXPECT_TRUE(claims(outcome));
    EXPECT_EQ(outcome.simulation.cost, cost) << budget;
  }
}

TEST(VariantView, IsTheGraphWithOneWayEachAndPlansComeBack) {
  const Graph graph = graph_with_algorithms();
  IdVector<OpId, VariantId> chosen(3);
  for (OpId op : graph.ops()) chosen[op] = graph.variants(op)[graph.variants(op).size() - 1];
  ASSERT_EQ(graph.name(chosen[OpId(1)]), "slow");
  const VariantView view = *VariantView::make(graph, chosen);
  EXPECT_EQ(view.graph().num_variants(), 3);
  EXPECT_EQ(view.graph().base_cost(), 5);
  const Outcome outcome = *solve("keep_all", {.graph = &view.graph()});
  const Plan plan = view.original(*outcome.plan);
  EXPECT_EQ(simulate(graph, plan)->cost, 5);
  // And go there again, with the view's own variant where it lacks the plan's.
  EXPECT_EQ(view.viewed(plan).steps, outcome.plan->steps);
  const Plan fast = *solve("keep_all", {.graph = &graph})->plan;
  ASSERT_EQ(simulate(graph, fast)->cost, 3);
  const Plan viewed = view.viewed(fast);
  EXPECT_EQ(viewed.fingerprint, view.graph().fingerprint());
  EXPECT_EQ(simulate(view.graph(), viewed)->cost, 5);
}

TEST(Auto, GoesOnFromAPlanThatItIsGiven) {
  const Graph graph = *zoo_graph("MobileNet");
  const Bytes budget = live_bytes_keep_all(graph).peak_bytes / 2;
  Problem problem{.graph = &graph, .link = {0.02, 0.02, 0.04}, .budget = budget};
  const Outcome searched = *solve("auto", problem, {.work = 3'000'000});
  const Outcome hasty = *solve("auto", problem, {.work = 1});
  problem.start = &*searched.plan;
  const Outcome started = *solve("auto", problem, {.work = 1});
  ASSERT_TRUE(claims(searched) && claims(started));
  EXPECT_LE(started.simulation.cost, searched.simulation.cost * (1 + 1e-9));
  EXPECT_LT(started.simulation.cost, hasty.simulation.cost);
}

TEST(Auto, KeepsEverythingWhereItFits) {
  const Graph graph = *zoo_graph("vgg_unet");
  const Problem problem{.graph = &graph, .budget = live_bytes_keep_all(graph).peak_bytes};
  const Outcome outcome = *solve("auto", problem);
  EXPECT_EQ(outcome.status, PlanStatus::kOptimal);
  EXPECT_EQ(outcome.simulation.cost, graph.base_cost());
}

}  // namespace
}  // namespace regen::search
