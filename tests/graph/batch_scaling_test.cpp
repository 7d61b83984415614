#include "regen/graph/batch_scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"

namespace regen {
namespace {

// A layer with one weight, its gradient, and the update of the weight.
Graph step(const std::string& attributes = "") {
  GraphBuilder builder("step", CostUnit::kSecond);
  builder.set_attributes(attributes);
  const TensorId x = builder.add_tensor({.name = "x", .bytes = 40, .kind = TensorKind::kInput});
  const TensorId w = builder.add_tensor({.name = "w", .bytes = 100, .kind = TensorKind::kParam});
  const TensorId y = builder.add_tensor({.name = "y", .bytes = 81});
  const TensorId g = builder.add_tensor({.name = "g", .bytes = 100, .kind = TensorKind::kGradient});
  builder.add_op({.name = "layer",
                  .type = "op",
                  .inputs = {x, w},
                  .outputs = {y},
                  .variants = {{.cost = 4, .rerun_cost = 2, .workspace = 10}}});
  builder.add_op({.name = "gradient",
                  .type = "op",
                  .phase = Phase::kBackward,
                  .inputs = {x, y},
                  .outputs = {g},
                  .variants = {{.cost = 6}}});
  builder.add_op({.name = "update",
                  .type = "op",
                  .phase = Phase::kUpdate,
                  .inputs = {w, g},
                  .mutates = {w},
                  .variants = {{.cost = 1}}});
  return std::move(builder).build().value();
}

// From batch 4 to 10 is two and a half times as much; 81 * 2.5 = 202.5 is rounded up.
TEST(BatchScaling, GrowsWhatIsNotTheParameters) {
  const Graph graph = step();
  const Graph scaled = at_batch(graph, 4, 10).value();
  EXPECT_EQ(scaled.bytes(TensorId(0)), 100);
  EXPECT_EQ(scaled.bytes(TensorId(1)), 100);
  EXPECT_EQ(scaled.bytes(TensorId(2)), 203);
  EXPECT_EQ(scaled.bytes(TensorId(3)), 100);  // the update reads it: as large as the parameter
  EXPECT_EQ(scaled.cost(VariantId(0)), 10);
  EXPECT_EQ(scaled.rerun_cost(VariantId(0)), 5);
  EXPECT_EQ(scaled.workspace(VariantId(0)), 25);
  EXPECT_EQ(scaled.cost(VariantId(1)), 15);
  EXPECT_EQ(scaled.cost(VariantId(2)), 1);
  EXPECT_EQ(scaled.mutates(OpId(2)).size(), 1u);
  EXPECT_EQ(at_batch(graph, 4, 4).value().fingerprint(), graph.fingerprint());
}

TEST(BatchScaling, RefusesWhatNoMachineHolds) {
  GraphBuilder builder("large");
  builder.add_simple_op("a", "op", Phase::kForward, {}, kMaxBytes / 2, TensorKind::kOutput, 1);
  const Graph graph = std::move(builder).build().value();
  EXPECT_TRUE(at_batch(graph, 1, 2).ok());
  EXPECT_THAT(at_batch(graph, 1, 1'000'000).error().message,
              ::testing::HasSubstr("'large' at batch 1000000"));
}

TEST(BatchScaling, ReadsTheBatchThatAGraphStates) {
  EXPECT_EQ(stated_batch(step()).value(), std::nullopt);
  EXPECT_EQ(stated_batch(step(R"({"device": "x"})")).value(), std::nullopt);
  EXPECT_EQ(stated_batch(step(R"({"batch": 32})")).value(), 32);
  for (const char* bad : {"0", "-1", "1.5", "\"x\"", "null", "1000001", "1e30"}) {
    const auto batch = stated_batch(step(std::string("{\"batch\": ") + bad + "}"));
    ASSERT_FALSE(batch.ok()) << bad;
    EXPECT_THAT(batch.error().message, ::testing::HasSubstr("attributes.batch")) << bad;
  }
}

}  // namespace
}  // namespace regen
