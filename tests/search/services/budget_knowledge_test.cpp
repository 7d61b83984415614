#include "regen/search/services/budget_knowledge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "regen/base/random.h"

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

bool usable(const Outcome& outcome) {
  return outcome.status == PlanStatus::kFeasible || outcome.status == PlanStatus::kOptimal;
}

// From the widest class of plans to the narrowest, as BoundKind lists them.
bool holds_for(BoundKind bound, BoundKind plans) {
  return static_cast<int>(bound) <= static_cast<int>(plans);
}

// By the definition: the greatest of all bounds at no fewer bytes whose plans include these.
double greatest_bound(const std::vector<Outcome>& ascending, std::size_t at) {
  double greatest = 0;
  for (std::size_t i = at; i < ascending.size(); ++i) {
    if (holds_for(ascending[i].bound_kind, ascending[at].bound_kind)) {
      greatest = std::max(greatest, ascending[i].lower_bound);
    }
  }
  return greatest;
}

std::vector<Outcome> random_outcomes(std::uint64_t seed) {
  Random random(seed);
  std::vector<Outcome> outcomes;
  for (int i = 0; i < 8; ++i) {
    const auto status = random.between(0, 3) == 0 ? PlanStatus::kUnknown : PlanStatus::kFeasible;
    const auto kind = static_cast<BoundKind>(random.between(0, 2));
    const auto cost = static_cast<double>(random.between(10, 30));
    outcomes.push_back(outcome(status, cost, static_cast<double>(random.between(1, 20)), kind));
  }
  return outcomes;
}

std::vector<Outcome> shared(std::vector<Outcome> outcomes) {
  std::vector<Outcome*> ascending;
  ascending.reserve(outcomes.size());
  for (Outcome& each : outcomes) ascending.push_back(&each);
  share_knowledge(ascending);
  return outcomes;
}

TEST(BudgetKnowledge, EachBoundIsTheGreatestThatHolds) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const std::vector<Outcome> before = random_outcomes(seed);
    const std::vector<Outcome> after = shared(before);
    for (std::size_t i = 0; i < after.size(); ++i) {
      EXPECT_EQ(after[i].bound_kind, before[i].bound_kind) << "seed " << seed << " row " << i;
      const double greatest = greatest_bound(before, i);
      const double expected =
          usable(after[i]) ? std::min(greatest, after[i].simulation.cost) : greatest;
      EXPECT_EQ(after[i].lower_bound, expected) << "seed " << seed << " row " << i;
    }
  }
}

TEST(BudgetKnowledge, WithinOneKindABoundNeverRisesWithTheBudget) {
  int compared = 0;
  int risen_between_kinds = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const std::vector<Outcome> rows = shared(random_outcomes(seed));
    for (std::size_t more = 1; more < rows.size(); ++more) {
      for (std::size_t less = 0; less < more; ++less) {
        const bool risen = rows[more].lower_bound > rows[less].lower_bound;
        if (holds_for(rows[more].bound_kind, rows[less].bound_kind)) {
          ++compared;
          EXPECT_FALSE(risen) << "seed " << seed << " rows " << less << " and " << more;
        } else {
          risen_between_kinds += risen ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(compared, 5000);
  EXPECT_GT(risen_between_kinds, 100) << "why the kind is printed beside the bound";
}

}  // namespace
}  // namespace regen::search
