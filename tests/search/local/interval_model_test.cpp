#include "regen/search/local/interval_model.h"

#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/plan/validate.h"
#include "regen/search/build/sequence.h"
#include "regen/search/planner.h"
#include "tests/support/graphs/random_graph.h"

namespace regen::search {
namespace {

// a -> b -> c -> gb (reads a and c) -> ga (reads a and b).
Graph small_graph() {
  GraphBuilder builder("small");
  const auto add = [&](const char* name, Phase phase, std::vector<TensorId> inputs) {
    return builder.add_simple_op(name, "op", phase, std::move(inputs), 1, TensorKind::kActivation,
                                 1);
  };
  const TensorId a = add("a", Phase::kForward, {});
  const TensorId b = add("b", Phase::kForward, {a});
  const TensorId c = add("c", Phase::kForward, {b});
  const TensorId gb = add("gb", Phase::kBackward, {a, c});
  add("ga", Phase::kBackward, {a, b, gb});
  return std::move(builder).build().value();
}

std::vector<std::size_t> ops_of(const IntervalSequence& sequence) {
  std::vector<std::size_t> ops;
  for (OpId op : sequence.ops) ops.push_back(op.index());
  return ops;
}

TEST(IntervalModel, HasAnIntervalBetweenAnyTwoUsesAndOneAfterTheLast) {
  const Graph graph = small_graph();
  const IntervalModel model(graph);
  const auto a = model.intervals_of(TensorId(0));
  ASSERT_EQ(a.size(), 4);
  EXPECT_EQ(model.interval(a[0]), (ReuseInterval{TensorId(0), 0, 1}));
  EXPECT_EQ(model.interval(a[1]), (ReuseInterval{TensorId(0), 1, 3}));
  EXPECT_EQ(model.interval(a[2]), (ReuseInterval{TensorId(0), 3, 4}));
  EXPECT_EQ(model.interval(a[3]), (ReuseInterval{TensorId(0), 4, 5}));
  EXPECT_TRUE(model.last(a[3]));
  EXPECT_EQ(model.interval_at(TensorId(0), 2), a[1]);
  EXPECT_EQ(model.interval_at(TensorId(0), 3), a[1]);  // the interval that op 3 ends
  EXPECT_EQ(model.interval_at(TensorId(0), 4), a[2]);
}

TEST(IntervalModel, KeepingEverythingRunsEachOpOnce) {
  const Graph graph = small_graph();
  const IntervalModel model(graph);
  EXPECT_EQ(ops_of(model.sequence(model.keep_everything())),
            (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(IntervalModel, WhatIsMissingRunsAgainOnceAndThenStays) {
  const Graph graph = small_graph();
  const IntervalModel model(graph);
  Decisions holdings = model.keep_everything();
  holdings[model.intervals_of(TensorId(0))[1]] = Holding::kDropped;  // a between b and gb
  holdings[model.intervals_of(TensorId(1))[1]] = Holding::kDropped;  // b between c and ga
  const IntervalSequence sequence = model.sequence(holdings);
  EXPECT_EQ(ops_of(sequence), (std::vector<std::size_t>{0, 1, 2, 0, 3, 1, 4}));
  EXPECT_EQ(sequence.stage, (std::vector<std::uint32_t>{0, 1, 2, 3, 3, 4, 4}));
  EXPECT_EQ(sequence.returned[model.intervals_of(TensorId(0))[1]], 3);
  // b reads a too: dropped between gb and ga as well, it is made once for both.
  holdings[model.intervals_of(TensorId(0))[2]] = Holding::kDropped;
  EXPECT_EQ(ops_of(model.sequence(holdings)), (std::vector<std::size_t>{0, 1, 2, 0, 3, 0, 1, 4}));
}

Decisions random_decisions(const IntervalModel& model, const Graph& graph, Random& random) {
  Decisions decisions = model.keep_everything();
  for (IntervalId g = 0; g < model.size(); ++g) {
    if (model.droppable(g) && random.chance(0.4)) {
      decisions[g] = random.chance(0.5) ? Holding::kDropped : Holding::kRecomputeEachUse;
    }
  }
  for (TensorId t : graph.tensors()) {
    const auto stage = static_cast<std::uint32_t>(
        random.between(0, static_cast<std::int64_t>(graph.num_ops()) - 1));
    if (!graph.fixed(t) && random.chance(0.2)) decisions.add(EarlyDrop{stage, t});
  }
  return decisions;
}

// A value is made again for each use after an early drop, and only then.
TEST(IntervalModel, AnEarlyDropEndsAStayBetweenReRuns) {
  const Graph graph = small_graph();
  const IntervalModel model(graph);
  Decisions decisions = model.keep_everything();
  decisions[model.intervals_of(TensorId(0))[1]] = Holding::kDropped;  // a between b and gb
  const std::size_t once = model.sequence(decisions).ops.size();
  decisions.add(EarlyDrop{4, TensorId(0)});
  EXPECT_EQ(model.sequence(decisions).ops.size(), once + 1);
  decisions.remove(EarlyDrop{4, TensorId(0)});
  EXPECT_EQ(model.sequence(decisions).ops.size(), once);
}

TEST(IntervalModel, AnEarlyRunComesBeforeTheOpOfItsStage) {
  const Graph graph = small_graph();
  const IntervalModel model(graph);
  Decisions decisions = model.keep_everything();
  decisions[model.intervals_of(TensorId(1))[1]] = Holding::kDropped;  // b between c and ga
  EXPECT_EQ(ops_of(model.sequence(decisions)), (std::vector<std::size_t>{0, 1, 2, 3, 1, 4}));
  decisions.add(EarlyRun{3, TensorId(1)});
  EXPECT_EQ(ops_of(model.sequence(decisions)), (std::vector<std::size_t>{0, 1, 2, 1, 3, 4}));
  decisions.remove(EarlyRun{3, TensorId(1)});
  // Of a value that is there, or not made yet, there is nothing to run.
  decisions.add(EarlyRun{2, TensorId(0)});
  decisions.add(EarlyRun{1, TensorId(2)});
  EXPECT_EQ(ops_of(model.sequence(decisions)), (std::vector<std::size_t>{0, 1, 2, 3, 1, 4}));
}

TEST(IntervalModel, AnEarlyRunIsReadOffAPlanThatMoves) {
  const Graph graph = small_graph();
  const IntervalModel model(graph);
  const TensorId a(0), b(1);
  const auto run = [&](std::size_t op) { return Step::compute(OpId(op)); };
  Plan plan{.steps = {run(0), Step::offload(a), run(1), run(2), Step::release(a), Step::release(b),
                      Step::fetch(a), run(1), run(3), run(4)}};
  ASSERT_TRUE(validate(graph, plan, {}).ok());
  const auto read = model.read_plan(plan);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->early_runs(), (std::vector<EarlyRun>{{3, b}}));
  EXPECT_EQ(ops_of(model.sequence(*read)), (std::vector<std::size_t>{0, 1, 2, 1, 3, 4}));
  // Where nothing moves it would take bytes for nothing.
  plan.steps = {run(0), run(1), run(2), Step::release(b), run(1), run(3), run(4)};
  EXPECT_TRUE(model.read_plan(plan)->early_runs().empty());
}

TEST(IntervalModel, AnyDecisionsGiveAValidPlanThatCanBeReadBack) {
  int plans = 0;
  int equal = 0;
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    if (!check_sequences_possible(graph).ok()) continue;
    const IntervalModel model(graph);
    const Decisions decisions = random_decisions(model, graph, random);
    const IntervalSequence sequence = model.sequence(decisions);
    const Plan plan = plan_from_sequence(graph, sequence.ops);
    if (!sequence.lost.empty()) {
      lost += !validate(graph, plan, {}).ok();
      continue;
    }
    const auto valid = validate(graph, plan, {});
    ASSERT_TRUE(valid.ok()) << "seed " << seed << ": " << valid.error().message;
    ++plans;
    const auto read = model.read_plan(plan);
    ASSERT_TRUE(read);
    const auto again = simulate(graph, plan_from_sequence(graph, model.sequence(*read).ops));
    const auto first = simulate(graph, plan);
    ASSERT_TRUE(again.ok() && first.ok());
    // Variants that overwrite inputs are chosen for the sequence, not read from the plan.
    equal += again->cost == first->cost && again->peak_bytes == first->peak_bytes;
  }
  EXPECT_GT(plans, 1000);
  EXPECT_GT(lost, 10) << "and what is lost has no valid plan";
  EXPECT_GT(equal, plans * 95 / 100);
}

TEST(IntervalModel, APlanInAnotherOrderIsNotRead) {
  GraphBuilder builder("two");
  const auto add = [&](const char* name) {
    return builder.add_simple_op(name, "op", Phase::kForward, {}, 1, TensorKind::kOutput, 1);
  };
  add("a");
  add("b");
  const Graph graph = std::move(builder).build().value();
  const IntervalModel model(graph);
  EXPECT_FALSE(model.read_plan(plan_from_sequence(graph, {OpId(1), OpId(0)})));
  EXPECT_TRUE(model.read_plan(plan_from_sequence(graph, {OpId(0), OpId(1)})));
}

}  // namespace
}  // namespace regen::search
