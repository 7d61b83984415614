#include "regen/search/services/budget_knowledge.h"

#include <gtest/gtest.h>

namespace regen::search {
namespace {

Outcome outcome(PlanStatus status, double cost, double bound, BoundKind kind) {
  Outcome result{.status = status, .lower_bound = bound, .bound_kind = kind};
  result.simulation.cost = cost;
  return result;
}

TEST(BudgetKnowledge, APlanAtFewerBytesFitsAtMore) {
  Outcome less = outcome(PlanStatus::kFeasible, 10, 4, BoundKind::kOrder);
  Outcome none = outcome(PlanStatus::kUnknown, 0, 3, BoundKind::kOrder);
  Outcome worse = outcome(PlanStatus::kFeasible, 12, 2, BoundKind::kOrder);
  share_knowledge(std::vector<Outcome*>{&less, &none, &worse});
  EXPECT_EQ(none.status, PlanStatus::kFeasible);
  EXPECT_EQ(none.simulation.cost, 10);
  EXPECT_EQ(worse.simulation.cost, 10);
  EXPECT_EQ(none.lower_bound, 3) << "a bound at fewer bytes says nothing at more";
}

TEST(BudgetKnowledge, ABoundAtMoreBytesHoldsAtFewer) {
  Outcome less = outcome(PlanStatus::kFeasible, 10, 4, BoundKind::kOrder);
  Outcome more = outcome(PlanStatus::kFeasible, 9, 6, BoundKind::kEveryPlan);
  share_knowledge(std::vector<Outcome*>{&less, &more});
  EXPECT_EQ(less.lower_bound, 6) << "a bound on every plan holds for those in order";
  EXPECT_DOUBLE_EQ(less.gap, 0.4);
}

TEST(BudgetKnowledge, ABoundOnFewerPlansSaysNothingAboutAll) {
  Outcome less = outcome(PlanStatus::kFeasible, 10, 4, BoundKind::kEveryPlan);
  Outcome more = outcome(PlanStatus::kFeasible, 9, 6, BoundKind::kOrder);
  share_knowledge(std::vector<Outcome*>{&less, &more});
  EXPECT_EQ(less.lower_bound, 4);
}

}  // namespace
}  // namespace regen::search
