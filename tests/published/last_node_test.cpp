#include "regen/published/baselines/last_node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"

namespace regen::published {
namespace {

// a -> b -> c -> d -> loss, and gradients gd, gc, gb, ga where the gradient of x reads the value
// before x.
Graph small_step() {
  GraphBuilder builder("small");
  const auto add = [&](const char* name, Phase phase, std::vector<TensorId> inputs) {
    return builder.add_simple_op(name, "op", phase, std::move(inputs), 1, TensorKind::kActivation,
                                 1);
  };
  const TensorId a = add("a", Phase::kForward, {});
  const TensorId b = add("b", Phase::kForward, {a});
  const TensorId c = add("c", Phase::kForward, {b});
  const TensorId d = add("d", Phase::kForward, {c});
  const TensorId loss = add("loss", Phase::kLoss, {d});
  const TensorId gd = add("gd", Phase::kBackward, {loss, c});
  const TensorId gc = add("gc", Phase::kBackward, {gd, b});
  const TensorId gb = add("gb", Phase::kBackward, {gc, a});
  add("ga", Phase::kBackward, {gb});
  return std::move(builder).build().value();
}

TEST(LastNode, RecomputesEverythingEachTime) {
  const Graph graph = small_step();
  Effort effort;
  std::vector<std::size_t> ids;
  for (OpId op : keep_last_sequence(graph, 1000, effort)) ids.push_back(op.index());
  // gd needs loss (just made) and c (a, b, c again); gc needs gd and b; gb needs gc and a.
  EXPECT_THAT(ids, ::testing::ElementsAre(0, 1, 2, 3, 4, 0, 1, 2, 5, 0, 1, 6, 0, 7, 8));
  EXPECT_EQ(effort.work(), 15);
}

TEST(LastNode, StopsAtItsStepLimit) {
  const Graph graph = small_step();
  Effort effort;
  EXPECT_TRUE(keep_last_sequence(graph, 5, effort).empty());
}

}  // namespace
}  // namespace regen::published
