// What is live for certain while each op runs.
#include "regen/search/bounds/guaranteed_liveness.h"

#include <gtest/gtest.h>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "tests/support/oracles/stage_oracle.h"

namespace regen::search {
namespace {

// With one way to run each op and nothing overwritten, it is what keeping everything holds.
TEST(GuaranteedLiveness, IsThatOfKeepingEverything) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_mirrored_graph(random, 2 + static_cast<int>(seed % 5));
    const GuaranteedLiveness live(graph);
    const Liveness kept = live_bytes_keep_all(graph);
    for (OpId op : graph.ops()) {
      EXPECT_EQ(live.bytes(op), static_cast<double>(kept.bytes[op])) << seed << " " << op.index();
    }
  }
}

// a, b and c wait for y; c reads a.
TEST(GuaranteedLiveness, SaysWhatIsSpareAndWhatItCostsAround) {
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
  const GuaranteedLiveness live(graph);
  EXPECT_EQ(live.bytes(OpId(1)), 11);
  EXPECT_EQ(live.bytes(OpId(3)), 1111);
  EXPECT_EQ(live.spare(OpId(2)), std::vector{b});
  EXPECT_EQ(live.spare_bytes(std::vector<double>{1, 0.5, 1, 1})[2], 5);
  EXPECT_EQ(live.cost_before(OpId(2)), 3);
  EXPECT_EQ(live.cost_from(OpId(2)), 12);
  EXPECT_TRUE(live.reads_last(OpId(3), a));
  EXPECT_FALSE(live.reads_last(OpId(2), a));
}

}  // namespace
}  // namespace regen::search
