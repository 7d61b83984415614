#include "regen/search/build/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/base/random.h"
#include "regen/graph/builder.h"
#include "regen/plan/validate.h"
#include "regen/search/local/interval_model.h"
#include "regen/simulate/simulate.h"
#include "tests/support/graphs/recurrent_graph.h"

namespace regen::search {
namespace {

using ::testing::ElementsAre;

// a -> b -> c -> d -> loss, and gradients gd, gc, gb, ga where the gradient of x reads the value
// before x. All tensors have one byte, all ops cost 1.
class SmallStep : public ::testing::Test {
 protected:
  SmallStep() {
    GraphBuilder builder("small");
    const auto add = [&](const char* name, Phase phase, std::vector<TensorId> inputs) {
      const TensorKind kind =
          phase == Phase::kBackward ? TensorKind::kGradient : TensorKind::kActivation;
      return builder.add_simple_op(name, "op", phase, std::move(inputs), 1, kind, 1);
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
    graph_ = std::move(builder).build().value();
  }

  std::vector<std::size_t> sequence(const std::vector<std::size_t>& checkpoints) {
    std::vector<OpId> marked;
    marked.reserve(checkpoints.size());
    for (std::size_t i : checkpoints) marked.emplace_back(i);
    Effort effort;
    std::vector<std::size_t> ids;
    for (OpId op : recompute_sequence(graph_, make_checkpoints(graph_, marked), effort)) {
      ids.push_back(op.index());
    }
    EXPECT_EQ(effort.work(), static_cast<std::int64_t>(ids.size()));
    return ids;
  }

  Graph graph_;
};

TEST_F(SmallStep, WithoutCheckpointsThereIsOneSegmentAndNothingIsRecomputed) {
  EXPECT_THAT(sequence({}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(SmallStep, AllCheckpointsRecomputeNothing) {
  EXPECT_THAT(sequence({0, 1, 2, 3}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8));
}

// Segments {a, b} and {c, d}; b is kept, a is recomputed when gb reads it.
TEST_F(SmallStep, ADroppedValueIsRecomputedWhenItIsNeeded) {
  EXPECT_THAT(sequence({1}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 0, 7, 8));
}

// Segments {a, b, c} and {d}: gc needs b, which needs a; a then stays for gb.
TEST_F(SmallStep, ASegmentIsRecomputedOnceAndItsValuesStay) {
  EXPECT_THAT(sequence({2}), ElementsAre(0, 1, 2, 3, 4, 5, 0, 1, 6, 7, 8));
}

TEST_F(SmallStep, EveryTensorIsReleasedAfterItsLastUse) {
  std::vector<OpId> order;
  for (OpId op : graph_.ops()) order.push_back(op);
  const Plan plan = plan_from_sequence(graph_, order);
  // d goes after loss; c and loss after gd; and so on; gb and ga at the end.
  std::vector<std::string> steps;
  for (const Step& step : plan.steps) steps.push_back(describe(graph_, step));
  EXPECT_THAT(steps,
              ElementsAre("compute 0 'a'", "compute 1 'b'", "compute 2 'c'", "compute 3 'd'",
                          "compute 4 'loss'", "release 3 'd'", "compute 5 'gd'", "release 2 'c'",
                          "release 4 'loss'", "compute 6 'gc'", "release 1 'b'", "release 5 'gd'",
                          "compute 7 'gb'", "release 0 'a'", "release 6 'gc'", "compute 8 'ga'",
                          "release 7 'gb'", "release 8 'ga'"));
  const auto simulation = simulate(graph_, plan);
  ASSERT_TRUE(simulation.ok());
  EXPECT_EQ(simulation->peak_bytes, 5);  // a, b, c, d, loss
}

// x -> relu -> y with an in-place variant: chosen when x is not needed again, not otherwise.
TEST(PlanFromSequence, OverwritesAnInputThatIsNotNeededAgain) {
  for (const bool needed_again : {false, true}) {
    GraphBuilder builder("in place");
    const TensorId x =
        builder.add_simple_op("x", "f", Phase::kForward, {}, 8, TensorKind::kActivation, 1);
    const TensorId y = builder.add_tensor({.name = "y", .bytes = 8});
    builder.add_op({.name = "relu",
                    .type = "relu",
                    .inputs = {x},
                    .outputs = {y},
                    .variants = {{.cost = 1}, {.name = "in place", .cost = 1, .overwrites = x}}});
    std::vector<TensorId> reads{y};
    if (needed_again) reads.push_back(x);
    builder.add_simple_op("z", "f", Phase::kForward, reads, 1, TensorKind::kOutput, 1);
    const Graph graph = std::move(builder).build().value();
    const Plan plan = plan_from_sequence(graph, {OpId(0), OpId(1), OpId(2)});
    ASSERT_TRUE(validate(graph, plan).ok());
    EXPECT_EQ(plan.steps[1], Step::compute(OpId(1), needed_again ? 0 : 1));
    EXPECT_EQ(simulate(graph, plan)->peak_bytes, needed_again ? 17 : 9);
  }
}

// The update of the weight comes before that of the bias, whose gradient is made from all that the
// weight made. The products must be repeatable nevertheless; that gradient then is not.
TEST(RepeatableOps, UpdatesDoNotForbidToRunTheForwardPassAgain) {
  const Graph graph = testing::recurrent_graph(5);
  const IdVector<OpId, char> repeatable = repeatable_ops(graph, /*forward_only=*/false);
  for (OpId op : graph.ops()) {
    EXPECT_TRUE(graph.phase(op) != Phase::kForward || repeatable[op]) << graph.name(op);
  }
  const OpId update_of_bias(graph.num_ops() - 1);
  EXPECT_FALSE(repeatable[graph.producer(graph.inputs(update_of_bias)[1])]);
}

// Whatever is dropped, nothing runs again after what it reads was changed, or the model says so.
TEST(RepeatableOps, AnyOfThemCanRunAgain) {
  const Graph graph = testing::recurrent_graph(6);
  const IntervalModel model(graph);
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    Decisions holdings = model.keep_everything();
    for (IntervalId g = 0; g < model.size(); ++g) {
      if (model.droppable(g) && random.chance(0.5)) holdings[g] = Holding::kRecomputeEachUse;
    }
    const IntervalSequence sequence = model.sequence(holdings);
    const auto valid = validate(graph, plan_from_sequence(graph, sequence.ops));
    ASSERT_EQ(valid.ok(), sequence.lost.empty()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace regen::search
