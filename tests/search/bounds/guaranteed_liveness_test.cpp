// What is live for certain, in the order of the graph and in all others, and the bounds made of it.
#include "regen/search/bounds/guaranteed_liveness.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "regen/plan/explain.h"
#include "regen/search/bounds/covering_bound.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/oracles/stage_oracle.h"

namespace regen::search {
namespace {

// The same tensors, the ops in another order.
Graph in_order(const Graph& graph, std::span<const OpId> order) {
  GraphBuilder builder(graph.name(), graph.cost_unit());
  for (TensorId t : graph.tensors()) builder.add_tensor(graph.tensor_spec(t));
  for (OpId op : order) builder.add_op(graph.op_spec(op));
  return std::move(builder).build().value();
}

// With one way to run each op and nothing overwritten, it is what keeping everything holds.
TEST(LivenessInOrder, IsThatOfKeepingEverything) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_mirrored_graph(random, 2 + static_cast<int>(seed % 5));
    const LivenessInOrder live(graph);
    const Liveness kept = live_bytes_keep_all(graph);
    for (OpId op : graph.ops()) {
      EXPECT_EQ(live.bytes(op), static_cast<double>(kept.bytes[op])) << seed << " " << op.index();
    }
  }
}

// a and b are independent and y reads both: neither is live for certain while the other is made, as
// it may come later. c reads a, so that b is live at c only if b came first.
TEST(LivenessInEveryOrder, HasOnlyWhatMustHaveRun) {
  GraphBuilder builder("y");
  const auto op = [&](const char* name, std::vector<TensorId> inputs, Bytes bytes, double cost,
                      TensorKind kind = TensorKind::kActivation) {
    return builder.add_simple_op(name, "op", Phase::kForward, std::move(inputs), bytes, kind, cost);
  };
  const TensorId a = op("a", {}, 1, 1);
  const TensorId b = op("b", {}, 10, 2);
  const TensorId c = op("c", {a}, 100, 4);
  op("y", {a, b, c}, 1000, 8, TensorKind::kOutput);
  const Graph graph = std::move(builder).build().value();
  const LivenessInEveryOrder every(graph);
  EXPECT_EQ(every.bytes(OpId(1)), 10);
  EXPECT_EQ(every.bytes(OpId(2)), 101);
  EXPECT_EQ(every.bytes(OpId(3)), 1111);
  EXPECT_TRUE(every.spare(OpId(2)).empty());
  const LivenessInOrder order(graph);
  EXPECT_EQ(order.bytes(OpId(1)), 11);
  EXPECT_EQ(order.spare(OpId(2)), std::vector{b});
  // c can come after a and b, and needs a; what follows c can be b and y.
  EXPECT_EQ(every.cost_before(OpId(2)), 3);
  EXPECT_EQ(every.cost_from(OpId(2)), 14);
  EXPECT_EQ(order.cost_before(OpId(2)), 3);
  EXPECT_EQ(order.cost_from(OpId(2)), 12);
  EXPECT_EQ(every.cost_before(OpId(1)), 5);  // a and c may both come before b
  EXPECT_TRUE(every.reads_last(OpId(3), a));
  EXPECT_FALSE(every.reads_last(OpId(2), a));
}

TEST(LivenessInEveryOrder, HoldsInAnyOrder) {
  int spare = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    const LivenessInEveryOrder every(graph);
    const std::vector<OpId> order = random_topological_order(graph, random);
    const Graph other = in_order(graph, order);
    const LivenessInOrder live(other);
    for (std::size_t i = 0; i < order.size(); ++i) {
      EXPECT_LE(every.bytes(order[i]), live.bytes(OpId(i))) << seed;
      EXPECT_GE(every.cost_before(order[i]), live.cost_before(OpId(i)) - 1e-9) << seed;
      EXPECT_GE(every.cost_from(order[i]), live.cost_from(OpId(i)) - 1e-9) << seed;
      const std::vector<TensorId> there = live.spare(OpId(i));
      for (TensorId t : every.spare(order[i])) {
        EXPECT_NE(std::ranges::find(there, t), there.end()) << seed << " tensor " << t.index();
        ++spare;
      }
    }
  }
  EXPECT_GT(spare, 1000);
}

// The bound for every order is no higher than that for any one, nor than the cheapest schedule.
TEST(CoveringBound, ForEveryOrderHoldsInAnyOrder) {
  int strict = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_mirrored_graph(random, 2 + static_cast<int>(seed % 3));
    const LivenessInEveryOrder every(graph);
    const Graph other = in_order(graph, random_topological_order(graph, random));
    for (const testing::Tradeoff& best : testing::frontier_tradeoffs(other, true)) {
      Effort effort;
      const Bytes budget = graph.fixed_bytes() + best.peak;
      const double bound = covering_bound(every, {}, budget, effort).cost;
      EXPECT_LE(bound, best.cost * (1 + 1e-9)) << "seed " << seed << " budget " << budget;
      EXPECT_LE(bound, covering_bound(other, {}, budget, effort).cost * (1 + 1e-9));
      strict += bound > graph.base_cost() * (1 + 1e-9);
    }
  }
  EXPECT_GT(strict, 30);
}

TEST(CoveringBound, ForEveryOrderIsNoHigherThanThatOfTheGraphsOwn) {
  const Link link{.to_host = 4, .to_device = 2, .both = 6};
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    const Bytes budget = structural_bound(graph).bytes + random.between(0, 20);
    for (const Link& speed : {Link{}, link}) {
      Effort effort;
      EXPECT_LE(covering_bound(LivenessInEveryOrder(graph), speed, budget, effort).cost,
                covering_bound(graph, speed, budget, effort).cost * (1 + 1e-9))
          << seed;
    }
  }
}

}  // namespace
}  // namespace regen::search
