// Choices among algorithms, some of them shared by several ops: against every assignment, each
// solved by exhaustive search.
#include "regen/search/portfolio/variant_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/published/planner_list.h"
#include "regen/search/registry.h"
#include "tests/support/oracles/implementation_oracle.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

// The same graph with other ops.
template <typename Change>
Graph changed(const Graph& graph, Change change) {
  GraphBuilder builder(graph.name(), graph.cost_unit());
  for (TensorId t : graph.tensors()) builder.add_tensor(graph.tensor_spec(t));
  for (OpId op : graph.ops()) {
    OpSpec spec = graph.op_spec(op);
    change(op, spec);
    builder.add_op(std::move(spec));
  }
  auto made = std::move(builder).build();
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *made;
}

// Ops with further ways to run, in groups or alone. More workspace is not always faster.
Graph with_choices(Random& random, const Graph& graph, int groups, int alone) {
  std::vector<std::size_t> variants;
  variants.reserve(static_cast<std::size_t>(groups));
  for (int i = 0; i < groups; ++i) variants.push_back(random.chance(0.5) ? 2 : 3);
  return changed(graph, [&](OpId, OpSpec& op) {
    std::size_t count = 1;
    if (groups > 0 && random.chance(0.6)) {
      const auto group = static_cast<std::size_t>(random.between(0, groups - 1));
      op.choice_group = ChoiceGroupId(group);
      count = variants[group];
    } else if (alone > 0 && random.chance(0.3)) {
      --alone;
      count = 2;
    }
    const VariantSpec first = op.variants[0];
    if (count > 1) op.variants[0].workspace += random.between(0, 30);
    for (std::size_t i = 1; i < count; ++i) {
      VariantSpec other = first;
      other.cost += static_cast<double>(random.between(0, 4));
      other.workspace += random.between(0, 15);
      op.variants.push_back(other);
    }
  });
}

// The cost of the best schedule over all assignments of variants.
class BestAssignment {
 public:
  BestAssignment(const Graph& graph, Bytes budget) : graph_(graph), budget_(budget) {
    choice_.resize(graph.num_ops(), 0);
    assign(0);
  }
  double cost() const { return best_; }

 private:
  void assign(std::size_t op) {
    if (op == graph_.num_ops()) return price();
    const ChoiceGroupId group = graph_.choice_group(OpId(op));
    for (std::size_t earlier = 0; group.valid() && earlier < op; ++earlier) {
      if (graph_.choice_group(OpId(earlier)) != group) continue;
      choice_[op] = choice_[earlier];
      return assign(op + 1);
    }
    for (std::size_t i = 0; i < graph_.variants(OpId(op)).size(); ++i) {
      choice_[op] = i;
      assign(op + 1);
    }
  }

  void price() {
    const Graph one = changed(graph_, [&](OpId op, OpSpec& spec) {
      spec.variants = {spec.variants[choice_[op.index()]]};
    });
    for (const testing::Tradeoff& schedule : testing::frontier_tradeoffs(one, true)) {
      if (schedule.peak + graph_.fixed_bytes() <= budget_) best_ = std::min(best_, schedule.cost);
    }
  }

  const Graph& graph_;
  const Bytes budget_;
  std::vector<std::size_t> choice_;
  double best_ = kNone;
};

// Whether some op may take one way in its first run and another one later.
bool runs_may_differ(const Graph& graph) {
  return std::ranges::any_of(graph.ops(), [&](OpId op) {
    return graph.variants(op).size() > 1 && !graph.choice_group(op).valid() &&
           graph.recomputable(op);
  });
}

TEST(VariantChoice, EqualsTheBestOfAllAssignments) {
  int feasible = 0;
  int proven = 0;
  int others = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph plain = testing::random_mirrored_graph(random, 2 + static_cast<int>(seed % 2));
    const Graph graph = with_choices(random, plain, 1 + static_cast<int>(seed % 3), 1);
    const Bytes low = structural_bound(graph).bytes;
    const Bytes budget = low + random.between(0, 20);
    const double best = BestAssignment(graph, budget).cost();
    const auto outcome = solve("auto", {.graph = &graph, .budget = budget});
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    const bool found =
        outcome->status == PlanStatus::kOptimal || outcome->status == PlanStatus::kFeasible;
    ASSERT_EQ(found, best < kNone) << to_string(outcome->status) << " " << outcome->note;
    if (!found) continue;
    ++feasible;
    if (runs_may_differ(graph)) {
      EXPECT_LE(outcome->simulation.cost, best + 1e-9);
    } else {
      EXPECT_EQ(outcome->status, PlanStatus::kOptimal);
      EXPECT_NEAR(outcome->simulation.cost, best, 1e-9);
      ++proven;
    }
    EXPECT_LE(outcome->lower_bound, best * (1 + 1e-9));
    others += std::ranges::any_of(outcome->plan->steps, [](const Step& step) {
      return step.kind() == StepKind::kCompute && step.choice() > 0;
    });
  }
  EXPECT_GT(feasible, 30);
  EXPECT_GT(proven, 10);
  EXPECT_GT(others, 15);
}

// Every run may take another way: what is proven must hold for such plans too.
TEST(VariantChoice, BoundsAndProofsAreAboutRunsThatDiffer) {
  int compared = 0;
  int equal = 0;
  int proven = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph plain = testing::random_mirrored_graph(random, 2 + static_cast<int>(seed % 2));
    const Graph graph = with_choices(random, plain, 0, 3);
    const Bytes budget = structural_bound(graph).bytes + random.between(0, 20);
    Problem problem{.graph = &graph, .budget = budget};
    problem.options.keep_order = true;
    const auto outcome = solve("auto", problem);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    const double best = testing::cheapest_over_variants(graph, budget).value_or(kNone);
    EXPECT_LE(outcome->lower_bound, best * (1 + 1e-9));
    const bool optimal = outcome->status == PlanStatus::kOptimal;
    if (!optimal && outcome->status != PlanStatus::kFeasible) continue;
    ++compared;
    equal += outcome->simulation.cost <= best * (1 + 1e-9);
    proven += optimal;
    EXPECT_GE(outcome->simulation.cost, best * (1 - 1e-9));
    EXPECT_TRUE(!optimal || outcome->simulation.cost <= best * (1 + 1e-9));
  }
  EXPECT_GT(compared, 30);
  EXPECT_GE(equal, compared * 9 / 10);
  EXPECT_GT(proven, 10);
}

// Too many to be planned one by one.
TEST(VariantChoice, ManyGroupsFitWhereTheSmallestWaysDo) {
  int feasible = 0;
  for (std::uint64_t seed = 0; seed < 15; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph plain = testing::random_mirrored_graph(random, 9);
    const Graph graph = with_choices(random, plain, 8, 4);
    if (few_choices(graph)) continue;
    const VariantView smallest = *VariantView::make(graph, smallest_choice(graph));
    const Bytes budget = live_bytes_keep_all(smallest.graph()).peak_bytes;
    const auto outcome = solve("auto", {.graph = &graph, .budget = budget}, {.work = 1'000'000});
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    ASSERT_TRUE(outcome->plan);
    EXPECT_TRUE(validate(graph, *outcome->plan).ok());
    EXPECT_LE(outcome->simulation.cost, smallest.graph().base_cost() * (1 + 1e-9));
    ++feasible;
  }
  EXPECT_GT(feasible, 8);
}

// Planners that take one way for each op, and those that choose for each op by itself.
TEST(VariantChoice, EveryPlannerKeepsGroupsTogether) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Random random(seed);
    const Graph plain = testing::random_mirrored_graph(random, 4);
    const Graph graph = with_choices(random, plain, 2, 1);
    for (const Planner& entry : published::every_planner().planners()) {
      const auto outcome = solve(entry.name, {.graph = &graph}, {.work = 100'000});
      if (outcome.ok() || outcome.error().message.find("choice group") == std::string::npos) {
        continue;
      }
      ADD_FAILURE() << entry.name << " seed " << seed << ": " << outcome.error().message;
    }
  }
}

TEST(VariantChoice, AGroupIsOneDecision) {
  GraphBuilder builder("pair");
  for (int i = 0; i < 3; ++i) {
    const TensorId t = builder.add_tensor({.name = "t" + std::to_string(i), .bytes = 10});
    OpSpec op{.name = "op" + std::to_string(i), .type = "op", .outputs = {t}};
    op.variants = {{.cost = 1, .workspace = 100}, {.cost = 2 + 4.0 * i, .workspace = 20 * i}};
    if (i < 2) op.choice_group = ChoiceGroupId(1);
    builder.add_op(std::move(op));
  }
  const Graph graph = std::move(builder).build().value();
  const std::vector<VariantDecision> decisions = variant_decisions(graph);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].ops, std::vector{OpId(2)});
  EXPECT_EQ(decisions[1].ops, (std::vector{OpId(0), OpId(1)}));
  // Op 1 needs 20 bytes in its smaller way: less than that is exceeded least by it.
  const auto within = [&](Bytes bytes) {
    return fastest_within(graph, decisions[1], [bytes](OpId) { return bytes; });
  };
  EXPECT_EQ(within(100), 0u);
  EXPECT_EQ(within(99), 1u);
  EXPECT_EQ(within(0), 1u);
  EXPECT_EQ(smallest_choice(graph)[OpId(1)], graph.variants(OpId(1))[1]);
}

}  // namespace
}  // namespace regen::search
