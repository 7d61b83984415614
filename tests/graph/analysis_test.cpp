#include "regen/graph/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "regen/graph/builder.h"
#include "tests/support/graphs/forward_graphs.h"

namespace regen {
namespace {

using testing::Arguments;
using testing::chain;
using testing::forward_graph;
using testing::Ids;
using testing::ids;
using testing::kDiamond;
using testing::random_arguments;

TEST(LastUses, AreTheHighestReaders) {
  const auto last = last_uses(forward_graph(kDiamond));
  EXPECT_EQ(last[TensorId(0)], OpId(2));
  EXPECT_EQ(last[TensorId(1)], OpId(3));
  EXPECT_EQ(last[TensorId(3)], OpId(4));
  EXPECT_FALSE(last[TensorId(4)].valid());
}

// p (100 bytes, fixed) -> a (10) -> b (20) -> c (30, an output); b has a workspace of 5.
//   a: 100 + 10        b: 100 + 10 + 20 + 5     c: 100 + 20 + 30 (a went after b)
TEST(LiveBytes, ReleasesAtTheLastUse) {
  GraphBuilder builder("chain");
  const TensorId p = builder.add_tensor({.name = "p", .bytes = 100, .kind = TensorKind::kParam});
  const TensorId a = builder.add_tensor({.name = "a", .bytes = 10});
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 20});
  const TensorId c = builder.add_tensor({.name = "c", .bytes = 30, .kind = TensorKind::kOutput});
  builder.add_op({.name = "a", .inputs = {p}, .outputs = {a}});
  builder.add_op({.name = "b", .inputs = {a}, .outputs = {b}, .variants = {{.workspace = 5}}});
  builder.add_op({.name = "c", .inputs = {b, p}, .outputs = {c}});
  const auto liveness = live_bytes_keep_all(std::move(builder).build().value());
  EXPECT_EQ(liveness.bytes.raw(), (std::vector<Bytes>{110, 135, 150}));
  EXPECT_EQ(liveness.peak_bytes, 150);
  EXPECT_EQ(liveness.peak_op, OpId(2));
}

// a (10) is overwritten by b (8), which nothing reads: 10, then 10 while b takes its place, and
// nothing of both is left when c (1, an output) is made.
TEST(LiveBytes, KnowsOverwritingAndUnreadTensors) {
  GraphBuilder builder("overwrite");
  const TensorId a = builder.add_tensor({.name = "a", .bytes = 10});
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 8});
  const TensorId c = builder.add_tensor({.name = "c", .bytes = 1, .kind = TensorKind::kOutput});
  builder.add_op({.name = "a", .outputs = {a}});
  builder.add_op({.name = "b", .inputs = {a}, .outputs = {b}, .variants = {{.overwrites = a}}});
  builder.add_op({.name = "c", .outputs = {c}});
  const auto liveness = live_bytes_keep_all(std::move(builder).build().value());
  EXPECT_EQ(liveness.bytes.raw(), (std::vector<Bytes>{10, 10, 1}));
  EXPECT_EQ(liveness.peak_op, OpId(0)) << "the first of equal peaks";
}

// The default variant of c does not read a, so a goes after b although another variant reads it;
// the mask of the other variant is never made.
TEST(LiveBytes, LooksAtDefaultVariantsOnly) {
  GraphBuilder builder("variants");
  const TensorId a = builder.add_tensor({.name = "a", .bytes = 10});
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 20});
  const TensorId mask = builder.add_tensor({.name = "mask", .bytes = 50});
  const TensorId c = builder.add_tensor({.name = "c", .bytes = 1, .kind = TensorKind::kOutput});
  builder.add_op({.name = "a", .outputs = {a}});
  builder.add_op({.name = "b",
                  .inputs = {a},
                  .outputs = {b},
                  .variants = {{.name = "plain"}, {.name = "masked", .extra_outputs = {mask}}}});
  builder.add_op(
      {.name = "c",
       .inputs = {a, b},
       .outputs = {c},
       .variants = {{.name = "plain", .reads = std::vector<TensorId>{b}}, {.name = "both"}}});
  const Graph graph = std::move(builder).build().value();
  EXPECT_EQ(live_bytes_keep_all(graph).bytes.raw(), (std::vector<Bytes>{10, 30, 21}));
  EXPECT_EQ(last_uses(graph)[a], OpId(2)) << "some variant reads it there";
}

TEST(OpGraph, ListsMakersInArgumentOrderWithoutRepetition) {
  GraphBuilder builder("two outputs");
  const TensorId x = builder.add_tensor({.name = "x", .bytes = 1, .kind = TensorKind::kInput});
  std::vector<TensorId> t(4);
  for (TensorId& made : t) made = builder.add_tensor({.name = "t", .bytes = 1});
  builder.add_op({.name = "pair", .inputs = {x}, .outputs = {t[0], t[1]}});
  builder.add_op({.name = "other", .inputs = {x}, .outputs = {t[2]}});
  builder.add_op({.name = "sum", .inputs = {t[2], t[1], x, t[0]}, .outputs = {t[3]}});
  const OpGraph graph = op_graph(std::move(builder).build().value());
  EXPECT_EQ(ids(graph.predecessors[OpId(2)]), (Ids{1, 0}));
  EXPECT_EQ(ids(graph.successors[OpId(0)]), (Ids{2}));
  EXPECT_TRUE(graph.predecessors[OpId(0)].empty());
  EXPECT_EQ(graph.predecessors.num_rows(), 3u);
}

TEST(OpGraph, ForwardPartLeavesOutLossAndBackward) {
  GraphBuilder builder("step");
  const auto add = [&](Phase phase, const std::vector<TensorId>& inputs) {
    return builder.add_simple_op("op", "op", phase, inputs, 1, TensorKind::kActivation, 1);
  };
  const TensorId a = add(Phase::kForward, {});
  const TensorId b = add(Phase::kForward, {a});
  const TensorId loss = add(Phase::kLoss, {b});
  add(Phase::kBackward, {loss, b, a});
  const Graph graph = std::move(builder).build().value();
  EXPECT_EQ(op_graph(graph).predecessors.num_items(), 5u);
  const OpGraph forward = forward_op_graph(graph);
  EXPECT_EQ(forward.predecessors.num_items(), 1u);
  EXPECT_EQ(ids(forward.predecessors[OpId(1)]), (Ids{0}));
  EXPECT_EQ(ids(articulation_points(graph)), (Ids{0, 1}));
}

TEST(TopologicalOrder, IsRecognised) {
  const Graph graph = forward_graph(kDiamond);
  const auto check = [&](const Ids& order) {
    std::vector<OpId> ops;
    for (std::size_t i : order) ops.emplace_back(i);
    return is_topological(graph, ops);
  };
  EXPECT_TRUE(check({0, 1, 2, 3, 4}));
  EXPECT_TRUE(check({0, 2, 1, 3, 4}));
  EXPECT_FALSE(check({0, 1, 3, 2, 4})) << "3 needs 2";
  EXPECT_FALSE(check({0, 1, 2, 3})) << "4 is missing";
  EXPECT_FALSE(check({0, 1, 2, 3, 3})) << "3 is there twice";
  EXPECT_FALSE(check({0, 1, 2, 3, 5})) << "there is no 5";
}

// Both readers of w stand on their side of the update, and so does the second update.
TEST(TopologicalOrder, KeepsReadersOnTheirSideOfMutations) {
  GraphBuilder builder("update");
  const TensorId w = builder.add_tensor({.name = "w", .bytes = 1, .kind = TensorKind::kParam});
  const TensorId a = builder.add_tensor({.name = "a", .bytes = 1});
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 1});
  builder.add_op({.name = "read", .inputs = {w}, .outputs = {a}});
  builder.add_op({.name = "update", .phase = Phase::kUpdate, .inputs = {w}, .mutates = {w}});
  builder.add_op({.name = "read again", .inputs = {w}, .outputs = {b}});
  builder.add_op({.name = "blind update", .phase = Phase::kUpdate, .mutates = {w}});
  const Graph graph = std::move(builder).build().value();
  const OpGraph order = ordering_graph(graph);
  EXPECT_EQ(ids(order.predecessors[OpId(1)]), (Ids{0}));
  EXPECT_EQ(ids(order.predecessors[OpId(2)]), (Ids{1}));
  EXPECT_EQ(ids(order.predecessors[OpId(3)]), (Ids{1, 2}));
  EXPECT_EQ(op_graph(graph).predecessors.num_items(), 0u);
}

TEST(ArticulationPoints, AreEverythingOnAChain) {
  EXPECT_EQ(ids(articulation_points(forward_graph(chain(4)))), (Ids{0, 1, 2, 3}));
}

TEST(ArticulationPoints, LeaveOutTheSidesOfADiamond) {
  EXPECT_EQ(ids(articulation_points(forward_graph(kDiamond))), (Ids{0, 3, 4}));
}

// The highest op is a side branch: it gets the virtual vertex, and the real end does not.
TEST(ArticulationPoints, HangTheLastVirtualVertexOnTheHighestOp) {
  EXPECT_EQ(ids(articulation_points(forward_graph({{}, {0}, {1}, {0, 1}}))), (Ids{0, 1, 3}));
}

TEST(ArticulationPoints, DoNotCountIsolatedOps) {
  EXPECT_EQ(ids(articulation_points(forward_graph({{}, {}, {1}, {}}))), (Ids{1, 2}));
  EXPECT_TRUE(articulation_points(forward_graph({{}})).empty());
  EXPECT_TRUE(articulation_points(forward_graph(chain(3), Phase::kBackward)).empty());
}

TEST(ArticulationPoints, AreAllOpsWhenTheGraphFallsApart) {
  EXPECT_EQ(ids(articulation_points(forward_graph({{}, {0}, {0, 1}, {}, {3}, {3, 4}}))),
            (Ids{0, 1, 2, 3, 4, 5}));
}

// Components left without `removed`, of the connected ops and both virtual vertices.
std::size_t components_without(const Arguments& arguments, const Ids& vertices,
                               std::size_t removed) {
  const std::size_t n = arguments.size();
  std::vector<std::size_t> root(n + 2);  // n and n + 1 are the virtual vertices
  for (std::size_t i = 0; i < root.size(); ++i) root[i] = i;
  const auto find = [&](std::size_t i) {
    while (root[i] != i) i = root[i];
    return i;
  };
  const auto join = [&](std::size_t a, std::size_t b) {
    if (a != removed && b != removed) root[find(a)] = find(b);
  };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j : arguments[i]) join(i, j);
  }
  join(n, vertices.front());
  join(n + 1, vertices.back());
  std::set<std::size_t> roots{find(n), find(n + 1)};
  for (std::size_t v : vertices) {
    if (v != removed) roots.insert(find(v));
  }
  return roots.size();
}

TEST(ArticulationPoints, AgreeWithRemovingEachVertex) {
  Random random(11);
  for (int trial = 0; trial < 500; ++trial) {
    const Arguments arguments =
        random_arguments(random, static_cast<std::size_t>(random.between(1, 25)));
    const Graph graph = forward_graph(arguments);
    const Ids vertices = ids(connected_forward_ops(graph));
    Ids expected;
    for (std::size_t v : vertices) {
      if (components_without(arguments, vertices, v) > 1) expected.push_back(v);
    }
    EXPECT_EQ(ids(articulation_points(graph)), expected) << ::testing::PrintToString(arguments);
  }
}

// Deep graphs must not use the machine's stack, and everything must be linear.
TEST(Analysis, HandlesAHundredThousandOps) {
  const std::size_t n = 100'000;
  Arguments arguments = chain(n);
  for (std::size_t i = 2; i < n; i += 2) arguments[i].push_back(0);  // one op with many readers
  const Graph graph = forward_graph(arguments);
  EXPECT_TRUE(is_topological(graph, std::vector<OpId>(graph.ops().begin(), graph.ops().end())));
  EXPECT_EQ(ids(articulation_points(graph)), (Ids{0, n - 2, n - 1}));
  EXPECT_EQ(live_bytes_keep_all(graph).peak_bytes, 3);
  EXPECT_EQ(last_uses(graph)[TensorId(0)], OpId(n - 2));
}

}  // namespace
}  // namespace regen
