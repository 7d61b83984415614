// Starts of the search over intervals on long graphs. Work is counted, so that a search that goes
// through all intervals for each op fails here on every machine.
#include "regen/search/local/interval_blocks.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "regen/plan/validate.h"
#include "regen/search/build/sequence.h"
#include "regen/search/local/interval_repair.h"
#include "regen/search/local/local_search.h"
#include "regen/simulate/simulate.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/graphs/recurrent_graph.h"

namespace regen::search {
namespace {

Bytes fraction_of_peak(const Graph& graph, double fraction) {
  const Bytes fixed = graph.fixed_bytes();
  return fixed + static_cast<Bytes>(
                     fraction * static_cast<double>(live_bytes_keep_all(graph).peak_bytes - fixed));
}

// The first blocks that are found within this fraction of the peak; a plan that does not fit if there
// are none.
IntervalPlan plan_in_blocks(const Graph& graph, double fraction) {
  const Problem problem{.graph = &graph, .budget = fraction_of_peak(graph, fraction)};
  const IntervalSpace space(problem);
  Effort effort;
  IntervalRepair repair(space, effort);
  const IntervalBlocks blocks(space, repair.evaluate(space.model.keep_everything()));
  const auto decisions = blocks.within(static_cast<double>(*problem.budget));
  return decisions ? repair.evaluate(*decisions) : IntervalPlan{};
}

class LongGraph : public ::testing::TestWithParam<double> {};

TEST_P(LongGraph, BlocksFitAndCostLessThanAnotherForwardPass) {
  const Graph graph = testing::recurrent_graph(300);
  const IntervalPlan plan = plan_in_blocks(graph, GetParam());
  EXPECT_TRUE(plan.fits) << plan.peak_bytes << " of " << fraction_of_peak(graph, GetParam());
  double forward = 0;
  for (OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::kForward) forward += graph.cost(VariantId(op.index()));
  }
  EXPECT_LT(plan.cost, graph.base_cost() + forward);
}

TEST_P(LongGraph, AStartIsFoundInWorkThatGrowsWithTheGraph) {
  std::int64_t work = 0;
  for (const int steps : {500, 1'000}) {
    const Graph graph = testing::recurrent_graph(steps);
    const Problem problem{.graph = &graph, .budget = fraction_of_peak(graph, GetParam())};
    Effort effort({.work = 4'000'000});
    LocalSearch search(problem, effort);
    search.start_in_blocks();
    search.start();
    ASSERT_TRUE(search.best());
    const Plan plan = search.best_plan();
    EXPECT_TRUE(validate(graph, plan).ok());
    EXPECT_LE(simulate(graph, plan)->peak_bytes, *problem.budget);
    EXPECT_LT(effort.work(), static_cast<std::int64_t>(200 * graph.num_ops()));
    if (work > 0) {
      EXPECT_LT(effort.work(), 4 * work);
    }
    work = effort.work();
  }
}

INSTANTIATE_TEST_SUITE_P(Budgets, LongGraph, ::testing::Values(0.3, 0.5, 0.7));

// Residual layers whose normalisation has two results: a large one that the next ops read, and small
// statistics that the backward pass reads.
Graph normalised_layers(int layers) {
  GraphBuilder builder("normalised");
  const auto make = [&](const std::string& name, Phase phase, std::vector<TensorId> inputs,
                        double cost) {
    return builder.add_simple_op(name, name, phase, std::move(inputs), 100, TensorKind::kActivation,
                                 cost);
  };
  const TensorId input =
      builder.add_tensor({.name = "input", .bytes = 100, .kind = TensorKind::kInput});
  struct Saved {
    TensorId sum, small, cheap;
  };
  std::vector<Saved> saved;
  TensorId normalised = input;
  TensorId product = make("first", Phase::kForward, {input}, 50);
  for (int i = 0; i < layers; ++i) {
    const std::string number = std::to_string(i);
    const TensorId sum = make("sum" + number, Phase::kForward, {normalised, product}, 1);
    normalised = builder.add_tensor({.name = "large" + number, .bytes = 100});
    const TensorId small = builder.add_tensor({.name = "small" + number, .bytes = 1});
    builder.add_op({.name = "norm" + number,
                    .type = "norm",
                    .inputs = {sum},
                    .outputs = {normalised, small},
                    .variants = {{.cost = 2}}});
    const TensorId cheap = make("cheap" + number, Phase::kForward, {normalised}, 1);
    product = make("product" + number, Phase::kForward, {cheap}, 50);
    saved.push_back({sum, small, cheap});
  }
  TensorId gradient = make("loss", Phase::kLoss, {product}, 1);
  for (int i = layers; i-- > 0;) {
    const auto& [sum, small, cheap] = saved[static_cast<std::size_t>(i)];
    const std::string number = std::to_string(i);
    gradient = make("of_product" + number, Phase::kBackward, {gradient, cheap}, 60);
    gradient = make("of_norm" + number, Phase::kBackward, {gradient, sum, small}, 3);
  }
  return std::move(builder).build().value();
}

// A result that does not rest is made again although another one of its op rests. Counted as there,
// it would be made from the beginning of the network, all of which would come back at once.
TEST(IntervalBlocks, OfAnOpWithSeveralResultsOnlyThoseThatRestAreThere) {
  constexpr int kLayers = 60;
  const Graph graph = normalised_layers(kLayers);
  const IntervalPlan plan = plan_in_blocks(graph, 0.2);
  EXPECT_TRUE(plan.fits) << plan.peak_bytes << " of " << fraction_of_peak(graph, 0.2);
  EXPECT_LT(plan.cost, graph.base_cost() + kLayers * (1 + 2 + 1 + 50));
}

// With a link that carries half of the forward values in the time of the forward pass.
TEST(IntervalBlocks, WhatBlocksHoldMovesWhereThereIsALink) {
  const Graph graph = testing::recurrent_graph(300);
  double forward = 0;
  for (OpId op : graph.ops()) {
    if (graph.phase(op) == Phase::kForward) forward += graph.cost(VariantId(op.index()));
  }
  const double bytes = static_cast<double>(live_bytes_keep_all(graph).peak_bytes);
  const double speed = 0.5 * bytes / forward;
  const auto cost_over = [&](const Link& link) {
    Effort effort;
    const Problem problem{.graph = &graph, .link = link, .budget = fraction_of_peak(graph, 0.4)};
    LocalSearch search(problem, effort);
    search.start_in_blocks();
    EXPECT_TRUE(search.best() && search.best()->fits);
    const Plan plan = search.best_plan();
    EXPECT_TRUE(validate(graph, plan).ok());
    const auto simulation = simulate(graph, plan, {.link = link});
    EXPECT_LE(simulation->peak_bytes, *problem.budget);
    return simulation->cost - graph.base_cost();
  };
  EXPECT_LT(cost_over({speed, speed, 2 * speed}), 0.5 * cost_over({}));
}

TEST(IntervalBlocks, NothingIsFoundWhereNoBlocksFit) {
  const Graph graph = testing::recurrent_graph(50);
  const Problem problem{.graph = &graph, .budget = fraction_of_peak(graph, 0.5)};
  const IntervalSpace space(problem);
  Effort effort;
  IntervalRepair repair(space, effort);
  const IntervalBlocks blocks(space, repair.evaluate(space.model.keep_everything()));
  EXPECT_FALSE(blocks.within(0));
}

TEST(IntervalBlocks, WhatIsPreferredIsDroppedFirst) {
  const Graph graph = testing::recurrent_graph(100);
  const Problem problem{.graph = &graph, .budget = fraction_of_peak(graph, 0.6)};
  const IntervalSpace space(problem);
  Effort effort;
  IntervalRepair repair(space, effort);
  const IntervalPlan kept = repair.evaluate(space.model.keep_everything());
  std::vector<double> again(graph.num_ops(), 0);
  for (OpId op : graph.ops()) again[op.index()] = graph.type(op) == "gates";
  const auto gates_dropped = [&](const IntervalBlocks& blocks) {
    const auto decisions = blocks.within(static_cast<double>(*problem.budget));
    int dropped = 0;
    for (const IntervalId g : space.inner) {
      const bool gates = graph.type(graph.producer(space.model.interval(g).tensor)) == "gates";
      dropped += gates && (*decisions)[g] == Holding::kDropped;
    }
    return dropped;
  };
  IntervalBlocks blocks(space, kept);
  const int by_price = gates_dropped(blocks);
  blocks.prefer(again);
  EXPECT_GT(gates_dropped(blocks), by_price);
}

// Of random graphs with parallel paths: whatever is found is a plan, and an estimate that is wrong
// is one of bytes only.
TEST(IntervalBlocks, DecisionsAlwaysGiveAValidPlan) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const Graph graph =
        testing::random_training_graph(random, {.min_layers = 15, .max_layers = 40});
    if (!check_sequences_possible(graph).ok()) continue;
    for (const double fraction : {0.6, 0.75, 0.9}) {
      const Problem problem{.graph = &graph, .budget = fraction_of_peak(graph, fraction)};
      const IntervalSpace space(problem);
      Effort effort;
      IntervalRepair repair(space, effort);
      const IntervalBlocks blocks(space, repair.evaluate(space.model.keep_everything()));
      const auto decisions = blocks.within(static_cast<double>(*problem.budget));
      if (!decisions) continue;
      ++found;
      const auto valid = validate(graph, {.steps = steps_of(graph, repair.evaluate(*decisions))});
      EXPECT_TRUE(valid.ok()) << "seed " << seed << ": " << valid.error().message;
    }
  }
  EXPECT_GT(found, 50);
}

}  // namespace
}  // namespace regen::search
