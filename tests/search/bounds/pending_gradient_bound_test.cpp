// The bound against the same game played the other way round, against exhaustive search over real
// schedules, and against a number worked out by hand.
#include "regen/search/bounds/pending_gradient_bound.h"

#include <gtest/gtest.h>

#include <set>

#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/search/judge.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

using Mask = std::uint32_t;  // tensors that ops after the forward pass made, by op

// Forwards, over every choice of what to drop and what to run next.
class ForwardGame {
 public:
  ForwardGame(const Graph& graph, bool gradients_again, Bytes budget)
      : graph_(graph), gradients_again_(gradients_again), budget_(budget) {}

  bool can_win() { return can_win(0, 0); }

 private:
  bool waits(OpId op) const { return graph_.phase(op) != Phase::kForward; }
  bool may_run(OpId op, std::size_t stage) const {
    return op.index() == stage || (gradients_again_ && graph_.recomputable(op));
  }

  bool can_win(std::size_t stage, Mask live) {
    if (!seen_.insert({stage, live}).second) return false;
    if (stage == graph_.num_ops()) return (live >> (stage - 1) & 1) != 0;  // the one output
    for (std::size_t i = 0; i <= stage; ++i) {
      if ((live >> i & 1) && can_win(stage, live & ~(Mask{1} << i))) return true;
      const bool run = i == stage || waits(OpId(i));
      if (run && may_run(OpId(i), stage) && can_win_by_running(OpId(i), stage, live)) return true;
    }
    return false;
  }

  bool can_win_by_running(OpId op, std::size_t stage, Mask live) {
    const VariantId v = graph_.default_variant(op);
    const Mask made = waits(op) ? Mask{1} << op.index() : 0;
    Mask others = live & ~made;
    Bytes memory = graph_.workspace(v) + graph_.bytes(graph_.makes(v)[0]);
    for (TensorId t : graph_.reads(v)) {
      if (graph_.fixed(t)) continue;
      const OpId from = graph_.producer(t);
      if (waits(from) && !(live >> from.index() & 1)) return false;
      others &= ~(Mask{1} << from.index());
      memory += graph_.bytes(t);
    }
    for (OpId other : graph_.ops()) {
      const VariantId o = graph_.default_variant(other);
      if (others >> other.index() & 1) memory += graph_.bytes(graph_.makes(o)[0]);
    }
    return memory <= budget_ && can_win(stage + (op.index() == stage ? 1 : 0), live | made);
  }

  const Graph& graph_;
  bool gradients_again_;
  Bytes budget_;
  std::set<std::pair<std::size_t, Mask>> seen_;
};

Bytes bound_of(const Graph& graph, bool gradients_again) {
  Effort effort;
  return pending_gradient_bound(make_stage_problem(graph, !gradients_again), effort);
}

TEST(PendingGradientBound, EqualsTheGamePlayedForwards) {
  for (int seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed));
    const Graph graph =
        testing::random_mirrored_graph(random, static_cast<int>(random.between(1, 7)));
    for (const bool gradients_again : {false, true}) {
      const Bytes bound = bound_of(graph, gradients_again);
      EXPECT_TRUE(ForwardGame(graph, gradients_again, bound).can_win());
      EXPECT_FALSE(ForwardGame(graph, gradients_again, bound - 1).can_win());
    }
  }
}

TEST(PendingGradientBound, HoldsForEverySchedule) {
  int above_the_ops = 0;
  for (int seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(static_cast<std::uint64_t>(seed) + 5'000);
    const bool gradients_again = seed % 2 == 0;
    const Graph graph = testing::random_mirrored_graph(
        random, static_cast<int>(random.between(1, gradients_again ? 4 : 6)));
    const auto tradeoffs = testing::frontier_tradeoffs(graph, gradients_again);
    ASSERT_FALSE(tradeoffs.empty());
    const Bytes bound = bound_of(graph, gradients_again);
    EXPECT_LE(bound, tradeoffs[0].peak);
    const Bytes ops_need = structural_bound(graph).bytes - graph.fixed_bytes();
    EXPECT_GE(bound, ops_need);
    above_the_ops += bound > ops_need;
  }
  EXPECT_GT(above_the_ops, 0);  // else the test would say nothing
}

// Where the first block with a shortcut is reversed, both branches' gradients are there at once:
// one waits while the other is used with two forward values and the gradient made from it. All
// five have 56 x 56 x 256 elements, and what the waiting one could be made from is no smaller.
TEST(PendingGradientBound, FiveLargeTensorsOfResNet50) {
  const Graph graph = zoo_graph("ResNet50", {.batch = 1}).value();
  const Bytes five = Bytes{5} * 56 * 56 * 256 * 4;
  EXPECT_EQ(bound_of(graph, true), five);
  Problem problem{.graph = &graph, .budget = graph.fixed_bytes() + five - 1};
  const auto outcome = solve("checkmate", problem, {.work = 20'000'000});
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->status, PlanStatus::kInfeasible);
  EXPECT_EQ(outcome->note, "");
}

TEST(PendingGradientBound, IsSmallerButHoldsWhenStopped) {
  const Graph graph = zoo_graph("ResNet50", {.batch = 1}).value();
  Effort effort({.work = 1'000});
  const Bytes bound = pending_gradient_bound(make_stage_problem(graph, false), effort);
  EXPECT_GE(bound, structural_bound(graph).bytes - graph.fixed_bytes());
  EXPECT_LT(bound, bound_of(graph, true));
}

}  // namespace
}  // namespace regen::search
