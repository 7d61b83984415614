#include "regen/plan/addresses.h"

#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/plan/validate.h"

namespace regen {
namespace {

// x (8 bytes) -> relu in place -> y (8) -> z (2, with 5 bytes of workspace).
Graph in_place_graph() {
  GraphBuilder builder("in place");
  const TensorId x =
      builder.add_simple_op("x", "f", Phase::kForward, {}, 8, TensorKind::kActivation, 1);
  const TensorId y = builder.add_tensor({.name = "y", .bytes = 8});
  builder.add_op({.name = "relu",
                  .type = "relu",
                  .inputs = {x},
                  .outputs = {y},
                  .variants = {{.cost = 1, .overwrites = x}}});
  const TensorId z = builder.add_tensor({.name = "z", .bytes = 2, .kind = TensorKind::kOutput});
  builder.add_op({.name = "z",
                  .type = "f",
                  .inputs = {y},
                  .outputs = {z},
                  .variants = {{.cost = 1, .workspace = 5}}});
  return std::move(builder).build().value();
}

const Plan kPlan{.steps = {Step::compute(OpId(0)), Step::compute(OpId(1)), Step::compute(OpId(2)),
                           Step::release(TensorId(1))}};

// step            0   1   2   3
// x, then y       #########        its storage is taken over: one lifetime [0, 3)
// z                       #####    [2, 4)
// workspace               #        [2, 3)
TEST(Addresses, LifetimesFollowTheSteps) {
  const std::vector<Lifetime> expected{{0, 3, 8}, {2, 4, 2}, {2, 3, 5}};
  EXPECT_EQ(allocation_lifetimes(in_place_graph(), kPlan), expected);
}

TEST(Addresses, ThePackedPlanIsValidAndAsHighAsItsPacking) {
  const Graph graph = in_place_graph();
  const auto addressed = with_addresses(graph, kPlan);
  ASSERT_TRUE(addressed.ok()) << addressed.error().message;
  EXPECT_EQ(addressed->packing.height, 15);  // 8 + 2 + 5, all at step 2
  const auto validation = validate(graph, addressed->plan);
  ASSERT_TRUE(validation.ok()) << validation.error().message;
  EXPECT_EQ(validation->peak_bytes, 15);
}

TEST(Addresses, ACapacityBelowTheLoadIsProvenImpossible) {
  const auto addressed = with_addresses(in_place_graph(), kPlan, {.capacity = 14});
  ASSERT_FALSE(addressed.ok());
  EXPECT_EQ(addressed.error().code, ErrorCode::kInfeasible);
}

}  // namespace
}  // namespace regen
