#include "regen/graph/cost_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"

namespace regen {
namespace {

Graph of_costs(const std::vector<double>& costs) {
  GraphBuilder builder("costs", CostUnit::kSecond);
  for (const double cost : costs) {
    builder.add_simple_op("op", "f", Phase::kForward, {}, 1, TensorKind::kActivation, cost);
  }
  return *std::move(builder).build();
}

TEST(CostRange, HoldsWhateverMachinesTake) {
  EXPECT_TRUE(check_cost_range(of_costs({0, 1e-9, 1, 1e21})).ok());
  EXPECT_TRUE(check_cost_range(of_costs({kLeastCost, kMostCost / 4})).ok());
}

TEST(CostRange, NamesWhatTakesASumTooFar) {
  for (const std::vector<double>& costs : {std::vector<double>{1, 1e308, 1e308},
                                           {kMostCost / 2, kMostCost / 2, kMostCost / 2},
                                           {1, kLeastCost / 2},
                                           {5e-324}}) {
    const Status status = check_cost_range(of_costs(costs));
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("op 'op': cost "));
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("expected"));
  }
}

}  // namespace
}  // namespace regen
