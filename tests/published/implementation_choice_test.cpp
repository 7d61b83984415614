// Variants that read other values or make more of them: whole choices by brute force, and the plans
// of `auto` against every sequence of runs in all variants.
#include "regen/published/implementations/implementations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <set>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/search/build/sequence.h"
#include "regen/search/registry.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/oracles/implementation_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::published {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 1e-9;

bool claims(const search::Outcome& outcome) {
  return outcome.status == search::PlanStatus::kFeasible ||
         outcome.status == search::PlanStatus::kOptimal;
}

double cost_of(const search::Outcome& outcome) {
  return claims(outcome) ? outcome.simulation.cost : kInfinity;
}

// A layer of 32 bytes whose gradient needs its sign only: from its input, its output, or a mask of
// one byte, that a second way to run the layer makes. Before it a layer whose value is of no other
// use, behind it one whose gradient needs nothing.
Graph sign_graph() {
  GraphBuilder builder("sign");
  const TensorId x = builder.add_tensor({"x", 4, TensorKind::kInput});
  const TensorId a =
      builder.add_simple_op("a", "op", Phase::kForward, {x}, 32, TensorKind::kActivation, 10);
  const TensorId y = builder.add_tensor({"y", 32});
  const TensorId mask = builder.add_tensor({"mask", 1});
  builder.add_op({.name = "relu",
                  .type = "op",
                  .inputs = {a},
                  .outputs = {y},
                  .variants = {{.name = "plain", .cost = 1},
                               {.name = "masked", .cost = 2, .extra_outputs = {mask}}}});
  const TensorId z =
      builder.add_simple_op("z", "op", Phase::kForward, {y}, 40, TensorKind::kActivation, 10);
  const TensorId dz =
      builder.add_simple_op("loss", "op", Phase::kLoss, {z}, 8, TensorKind::kGradient, 1);
  const TensorId dx = builder.add_tensor({"dx", 8, TensorKind::kOutput});
  builder.add_op({.name = "drelu",
                  .type = "op",
                  .phase = Phase::kBackward,
                  .inputs = {dz, a, y, mask},
                  .outputs = {dx},
                  .variants = {{.name = "input", .cost = 3, .reads = {{dz, a}}},
                               {.name = "output", .cost = 3, .reads = {{dz, y}}},
                               {.name = "mask", .cost = 3, .reads = {{dz, mask}}}}});
  return std::move(builder).build().value();
}

// Every op once costs 10 + 1 + 10 + 1 + 3 = 25. The most bytes are in use
//   reading the input    while z is made, with a and y: 4 + 32 + 32 + 40 = 108;
//   reading the output   at the loss, with y, z and dz: 4 + 32 + 40 + 8 = 84;
//   reading the mask     while z is made, with y and the mask: 4 + 32 + 40 + 1 = 77, for 1 more.
TEST(Implementations, TheOutputAndTheMaskArePaidForOnlyWhereTheySave) {
  const Graph graph = sign_graph();
  for (const auto& [budget, cost] :
       {std::pair<Bytes, double>{108, 25}, {107, 25}, {84, 25}, {83, 26}, {77, 26}}) {
    const search::Outcome outcome = *search::solve("auto", {.graph = &graph, .budget = budget});
    ASSERT_TRUE(claims(outcome)) << budget << " " << outcome.note;
    EXPECT_EQ(outcome.simulation.cost, cost) << budget;
    EXPECT_EQ(regen::testing::cheapest_over_variants(graph, budget), cost) << budget;
  }
}

// Every assignment of implementations, whole or not, by brute force.
std::set<std::vector<std::size_t>> whole_choices(const Graph& graph, const Implementations& all) {
  std::set<std::vector<std::size_t>> found;
  std::vector<std::size_t> chosen(graph.num_ops(), 0);
  for (;;) {
    bool whole = true;
    for (OpId op : graph.ops()) {
      for (TensorId t : all.of(op)[chosen[op.index()]].reads) {
        const OpId maker = graph.producer(t);
        const auto outputs = graph.outputs(maker);
        const auto& extras = all.of(maker)[chosen[maker.index()]].extras;
        whole = whole && (std::ranges::find(outputs, t) != outputs.end() ||
                          std::ranges::find(extras, t) != extras.end());
      }
    }
    if (whole) found.insert(chosen);
    std::size_t op = 0;
    while (op < chosen.size() && ++chosen[op] == all.of(OpId(op)).size()) chosen[op++] = 0;
    if (op == chosen.size()) return found;
  }
}

TEST(Implementations, AllThatAreWholeAndWorthIt) {
  std::size_t more = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(regen::testing::first_seed() + seed);
    const Graph graph = regen::testing::random_graph_with_implementations(random, 3);
    const Implementations all(graph);
    const auto brute = whole_choices(graph, all);
    const auto found = all.all(10'000);
    ASSERT_TRUE(found);
    double last = 0;
    for (const ChosenImplementations& chosen : *found) {
      EXPECT_TRUE(brute.contains(chosen.raw()));
      EXPECT_GE(all.cost(chosen), last);
      last = all.cost(chosen);
      const auto view = all.view(chosen);
      ASSERT_TRUE(view.ok()) << view.error().message;
      for (OpId op : graph.ops()) {
        EXPECT_EQ(search::base_variant(view->graph(), op), view->graph().default_variant(op));
      }
      ChosenImplementations settled = chosen;
      EXPECT_TRUE(all.settle(settled));
    }
    // What is left out costs no less and takes no fewer bytes than one with the same reads.
    for (const auto& chosen : brute) {
      const auto covers = [&](const ChosenImplementations& other) {
        return std::ranges::all_of(graph.ops(), [&](OpId op) {
          const Implementation& one = all.of(op)[chosen[op.index()]];
          const Implementation& two = all.of(op)[other[op]];
          return one.reads == two.reads && two.cost <= one.cost && two.own_bytes <= one.own_bytes;
        });
      };
      EXPECT_TRUE(std::ranges::any_of(*found, covers));
      ChosenImplementations settled(graph.num_ops(), 0);
      settled.raw() = chosen;
      ASSERT_TRUE(all.settle(settled));
      EXPECT_TRUE(brute.contains(settled.raw()));
      for (OpId op : graph.ops()) {
        EXPECT_EQ(all.of(op)[settled[op]].reads, all.of(op)[chosen[op.index()]].reads);
      }
    }
    more += found->size() > 1;
    EXPECT_FALSE(found->size() > 1 && all.all(found->size() - 1));
  }
  EXPECT_GT(more, 40u);
}

struct Counts {
  int compared = 0;
  int equal = 0;
  int others = 0;  // in which another implementation than the default one runs
  int without_a_plan = 0;
};

void compare_with_all_sequences(const Graph& graph, Bytes budget, const Limits& limits,
                                Counts& counts) {
  search::Problem problem{.graph = &graph, .budget = budget};
  problem.options.keep_order = true;
  const auto outcome = search::solve("auto", problem, limits);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  const auto best = regen::testing::cheapest_over_variants(graph, budget);
  EXPECT_LE(outcome->lower_bound, best.value_or(kInfinity) * (1 + kTolerance)) << budget;
  if (!best) {
    EXPECT_FALSE(claims(*outcome));
    return;
  }
  // To make a result of the step once more at its end, for the room meanwhile, is beyond planners.
  const auto kept = regen::testing::cheapest_over_variants(graph, budget, true);
  if (!claims(*outcome) && !kept) return;
  ++counts.compared;
  counts.without_a_plan += !claims(*outcome);
  if (!claims(*outcome)) return;
  EXPECT_TRUE(validate(graph, *outcome->plan, {.budget = budget}).ok());
  EXPECT_GE(outcome->simulation.cost, *best * (1 - kTolerance));
  EXPECT_TRUE(outcome->status != search::PlanStatus::kOptimal ||
              outcome->simulation.cost <= *best * (1 + kTolerance));
  counts.equal += outcome->simulation.cost <= kept.value_or(kInfinity) * (1 + kTolerance);
  counts.others += std::ranges::any_of(outcome->plan->steps, [](const Step& step) {
    return step.kind() == StepKind::kCompute && step.choice() > 0;
  });
}

TEST(Implementations, AutoAgainstEverySequenceInAllVariants) {
  Counts counts;
  for (std::uint64_t seed = 0; seed < (regen::testing::exhaustive() ? 500 : 60); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(regen::testing::first_seed() + seed);
    const Graph graph = regen::testing::random_graph_with_implementations(random, 2 + seed % 2);
    const Bytes low = structural_bound(graph).bytes;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    for (int point = 0; point < 3; ++point) {
      compare_with_all_sequences(graph, low + (high - low) * point / 3, {.work = 400'000}, counts);
    }
  }
  std::printf("%d compared, %d equal, %d with other implementations, %d without a plan\n",
              counts.compared, counts.equal, counts.others, counts.without_a_plan);
  EXPECT_GT(counts.compared, 100);
  EXPECT_GE(counts.equal, counts.compared * 97 / 100);
  EXPECT_GT(counts.others, counts.compared / 3);
  EXPECT_EQ(counts.without_a_plan, 0);
}

// With views, updates, results in place, and costs that follow no rule.
TEST(Implementations, AutoOnWholeStepsAgainstEverySequence) {
  Counts counts;
  for (std::uint64_t seed = 0; seed < (regen::testing::exhaustive() ? 500 : 60); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(regen::testing::first_seed() + seed);
    const Graph graph =
        regen::testing::random_training_graph(random, {.max_layers = 2, .oddities = 0});
    const auto planned =
        std::ranges::count_if(graph.tensors(), [&](TensorId t) { return !graph.fixed(t); });
    if (planned > 14) continue;
    const Bytes low = structural_bound(graph).bytes;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    for (int point = 0; point < 2; ++point) {
      compare_with_all_sequences(graph, low + (high - low) * point / 2, {.work = 400'000}, counts);
    }
  }
  std::printf("%d compared, %d equal, %d with other implementations, %d without a plan\n",
              counts.compared, counts.equal, counts.others, counts.without_a_plan);
  EXPECT_GT(counts.compared, 40);
  EXPECT_GE(counts.equal, counts.compared * 80 / 100);
}

TEST(Implementations, AutoIsNeverWorseThanMonet) {
  int compared = 0;
  int better = 0;
  for (std::uint64_t seed = 0; seed < (regen::testing::exhaustive() ? 100 : 8); ++seed) {
    Random random(regen::testing::first_seed() + seed);
    const Graph graph = regen::testing::random_graph_with_implementations(
        random, 4 + static_cast<int>(seed % 8), 1 << 20);
    const Bytes low = structural_bound(graph).bytes;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    for (int point = 0; point < 3; ++point) {
      const search::Problem problem{.graph = &graph, .budget = low + (high - low) * point / 3};
      const search::Outcome mine = *search::solve("auto", problem, {.work = 2'000'000});
      const auto monet = search::solve("monet", problem, {.work = 300'000});
      ASSERT_TRUE(monet.ok()) << monet.error().message;
      if (!claims(*monet)) continue;
      ++compared;
      EXPECT_LE(cost_of(mine), monet->simulation.cost * (1 + kTolerance)) << seed << " " << point;
      better += cost_of(mine) < monet->simulation.cost * (1 - kTolerance);
    }
  }
  std::printf("%d compared with monet, better in %d\n", compared, better);
  EXPECT_GT(compared, 15);
}

}  // namespace
}  // namespace regen::published
