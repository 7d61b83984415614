#include "regen/graph/builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace regen {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::size_t> indices(std::span<const TensorId> list) {
  std::vector<std::size_t> out;
  for (TensorId t : list) out.push_back(t.index());
  return out;
}

// A builder with an input x (0, 64 bytes), a parameter w (1, 8 bytes) and h (2, 64 bytes) made from
// both by op 'f', for tests of what is added next.
class BuilderTest : public ::testing::Test {
 protected:
  BuilderTest() : builder_("g") {
    x_ = builder_.add_tensor({.name = "x", .bytes = 64, .kind = TensorKind::kInput});
    w_ = builder_.add_tensor({.name = "w", .bytes = 8, .kind = TensorKind::kParam});
    h_ = builder_.add_tensor({.name = "h", .bytes = 64});
    builder_.add_op({.name = "f", .inputs = {x_, w_}, .outputs = {h_}, .variants = {{.cost = 3}}});
  }

  TensorId tensor(const char* name, Bytes bytes = 4, TensorKind kind = TensorKind::kActivation) {
    return builder_.add_tensor({.name = name, .bytes = bytes, .kind = kind});
  }
  std::string error() {
    auto graph = std::move(builder_).build();
    return graph.ok() ? "no error" : graph.error().message;
  }
  // What build() says after adding this op.
  std::string error_of(OpSpec op) {
    builder_.add_op(std::move(op));
    return error();
  }

  GraphBuilder builder_;
  TensorId x_, w_, h_;
};

TEST_F(BuilderTest, BuildsWhatWasAdded) {
  const TensorId y = tensor("y", 16, TensorKind::kOutput);
  builder_.add_op({.name = "g", .type = "exp", .inputs = {h_}, .outputs = {y}});
  const auto graph = std::move(builder_).build();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  EXPECT_EQ(graph->num_ops(), 2u);
  EXPECT_EQ(graph->num_tensors(), 4u);
  EXPECT_EQ(graph->num_variants(), 2u);
  EXPECT_EQ(graph->fixed_bytes(), 72);  // x and w
  EXPECT_EQ(graph->base_cost(), 3);     // the op without variants has one of cost 0
  EXPECT_EQ(graph->num_edges(), 1u);    // f -> g; fixed tensors have no maker
  EXPECT_EQ(graph->producer(h_), OpId(0));
  EXPECT_FALSE(graph->producer(x_).valid());
  EXPECT_THAT(graph->consumers(h_), ElementsAre(OpId(1)));
}

TEST_F(BuilderTest, KeepsRepeatedInputsOnce) {
  builder_.add_op({.name = "g", .inputs = {h_, x_, h_, h_}});
  // More than sixteen inputs take another way to the same answer.
  std::vector<TensorId> many(20, h_);
  many.push_back(x_);
  many.push_back(w_);
  many.push_back(x_);
  builder_.add_op({.name = "many", .inputs = many});
  const auto graph = std::move(builder_).build();
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(indices(graph->inputs(OpId(1))), ElementsAre(2, 0));
  EXPECT_THAT(indices(graph->inputs(OpId(2))), ElementsAre(2, 0, 1));
}

TEST_F(BuilderTest, InputsAreWhatSomeVariantReads) {
  // The op names w, but no variant reads it.
  builder_.add_op({.name = "g",
                   .inputs = {x_, w_, h_},
                   .variants = {{.reads = {{h_}}}, {.reads = {{x_, h_}}}}});
  const auto graph = std::move(builder_).build();
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(indices(graph->inputs(OpId(1))), ElementsAre(2, 0));
}

TEST_F(BuilderTest, AnOpThatMutatesIsNeverRecomputed) {
  builder_.add_op({.name = "sgd", .phase = Phase::kUpdate, .inputs = {w_}, .mutates = {w_}});
  const auto graph = std::move(builder_).build();
  ASSERT_TRUE(graph.ok());
  EXPECT_FALSE(graph->recomputable(OpId(1)));
  EXPECT_TRUE(graph->recomputable(OpId(0)));
}

TEST_F(BuilderTest, SpecsBuildAnEqualGraph) {
  const TensorId y = tensor("y", 64);
  const TensorId mask = tensor("mask", 2);
  const TensorId dx = tensor("dx", 64, TensorKind::kGradient);
  builder_.set_attributes("{}");
  builder_.add_op({.name = "g",
                   .type = "relu",
                   .inputs = {x_, h_},
                   .outputs = {y},
                   .random = true,
                   .variants = {{.name = "a", .cost = 1, .rerun_cost = 0, .reads = {{h_, x_}}},
                                {.name = "b", .workspace = 9, .extra_outputs = {mask}},
                                {.name = "c", .reads = {{h_}}, .overwrites = h_, .flops = 2},
                                {.name = "d", .reads = {{}}, .traffic = 3}},
                   .attributes = R"({"a":1})"});
  builder_.add_op({.name = "back",
                   .phase = Phase::kBackward,
                   .inputs = {mask},
                   .outputs = {dx},
                   .recomputable = false});
  const auto graph = std::move(builder_).build();
  ASSERT_TRUE(graph.ok()) << graph.error().message;
  GraphBuilder copy("g");
  copy.set_attributes("{}");
  for (TensorId t : graph->tensors()) copy.add_tensor(graph->tensor_spec(t));
  for (OpId op : graph->ops()) copy.add_op(graph->op_spec(op));
  const auto again = std::move(copy).build();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, *graph);
  EXPECT_EQ(again->fingerprint(), graph->fingerprint());
}

TEST_F(BuilderTest, OneCallMakesATensorAndItsOp) {
  const TensorId y =
      builder_.add_simple_op("y", "exp", Phase::kLoss, {h_}, 4, TensorKind::kOutput, 2);
  const auto graph = std::move(builder_).build();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(graph->name(y), "y");
  EXPECT_EQ(graph->producer(y), OpId(1));
  EXPECT_EQ(graph->phase(OpId(1)), Phase::kLoss);
  EXPECT_EQ(graph->base_cost(), 5);
}

TEST_F(BuilderTest, RefusesSizesOutOfRange) {
  tensor("bad", -1);
  EXPECT_EQ(error(), "graph 'g': tensor 3 'bad': -1 bytes is out of range, expected 0 to 8 PiB");
}

TEST_F(BuilderTest, RefusesSizesThatAddUpToTooMuch) {
  tensor("large", kMaxBytes);
  EXPECT_THAT(error(), HasSubstr("the sizes of all tensors add up to more than 8 PiB"));
}

TEST_F(BuilderTest, RefusesUnknownTensors) {
  EXPECT_EQ(error_of({.name = "g", .inputs = {TensorId(9)}}),
            "graph 'g': op 'g' reads tensor 9, expected an id below 3");
}

TEST_F(BuilderTest, RefusesUnknownOutputs) {
  EXPECT_EQ(error_of({.name = "g", .outputs = {TensorId(9)}}),
            "graph 'g': op 'g' makes tensor 9, expected an id below 3");
}

TEST_F(BuilderTest, RefusesTheAbsentId) {
  EXPECT_THAT(error_of({.name = "g", .inputs = {TensorId::none()}}), HasSubstr("op 'g' reads"));
}

TEST_F(BuilderTest, RefusesReadsBeforeTheMaker) {
  const TensorId y = tensor("y");
  EXPECT_EQ(
      error_of({.name = "g", .inputs = {y}}),
      "graph 'g': op 'g' reads tensor 3 'y' before any op makes it: the graph is cyclic or not "
      "in topological order");
}

TEST_F(BuilderTest, RefusesAnOpThatReadsItsOwnOutput) {
  const TensorId y = tensor("y");
  EXPECT_THAT(error_of({.name = "g", .inputs = {y}, .outputs = {y}}),
              HasSubstr("before any op makes it"));
}

TEST_F(BuilderTest, RefusesVariantReadsBeforeTheMaker) {
  const TensorId y = tensor("y");
  EXPECT_THAT(error_of({.name = "g", .variants = {{.reads = {{y}}}}}),
              HasSubstr("op 'g' reads tensor 3 'y' before any op makes it"));
}

TEST_F(BuilderTest, RefusesASecondMaker) {
  EXPECT_EQ(error_of({.name = "again", .outputs = {h_}}),
            "graph 'g': tensor 2 'h' is made twice, by op 'f' and by op 'again'");
}

TEST_F(BuilderTest, RefusesAnOutputNamedTwice) {
  const TensorId y = tensor("y");
  EXPECT_EQ(error_of({.name = "g", .outputs = {y, y}}),
            "graph 'g': tensor 3 'y' is made twice, by op 'g' and by op 'g'");
}

TEST_F(BuilderTest, RefusesAnExtraOutputThatIsAnOutput) {
  const TensorId y = tensor("y");
  EXPECT_THAT(error_of({.name = "g", .outputs = {y}, .variants = {{.extra_outputs = {y}}}}),
              HasSubstr("tensor 3 'y' is made twice"));
}

TEST_F(BuilderTest, VariantsMayShareAnExtraOutput) {
  const TensorId mask = tensor("mask");
  EXPECT_EQ(error_of({.name = "g",
                      .variants = {{.extra_outputs = {mask}}, {.extra_outputs = {mask}}, {}}}),
            "no error");
}

TEST_F(BuilderTest, RefusesToMakeAFixedTensor) {
  EXPECT_EQ(
      error_of({.name = "g", .outputs = {w_}}),
      "graph 'g': op 'g' makes tensor 1 'w' of the fixed kind param, expected a planned kind");
}

TEST_F(BuilderTest, RefusesToMutateAPlannedTensor) {
  EXPECT_EQ(error_of({.name = "g", .mutates = {h_}}),
            "graph 'g': op 'g' mutates tensor 2 'h', expected a fixed tensor");
}

TEST_F(BuilderTest, RefusesBadCosts) {
  for (double cost : {-1.0, kNan, kInfinity}) {
    for (const VariantSpec& variant : {VariantSpec{.cost = cost}, VariantSpec{.rerun_cost = cost},
                                       VariantSpec{.flops = cost}, VariantSpec{.traffic = cost}}) {
      GraphBuilder builder("g");
      builder.add_op({.name = "f", .variants = {variant}});
      EXPECT_EQ(std::move(builder).build().error().message,
                "graph 'g': op 'f' variant '': cost, rerun cost, flops and traffic must be finite "
                "and not negative");
    }
  }
}

TEST_F(BuilderTest, RefusesBadWorkspaces) {
  EXPECT_EQ(error_of({.name = "g", .variants = {{.name = "v", .workspace = -1}}}),
            "graph 'g': op 'g' variant 'v': workspace of -1 bytes is out of range, expected 0 to 8 "
            "PiB");
}

TEST_F(BuilderTest, OverwritesAnInputOfTheSameSize) {
  const TensorId y = tensor("y", 64);
  EXPECT_EQ(
      error_of({.name = "g", .inputs = {h_}, .outputs = {y}, .variants = {{.overwrites = h_}}}),
      "no error");
}

TEST_F(BuilderTest, OverwritesALargerInput) {
  const TensorId y = tensor("y", 63);
  EXPECT_EQ(
      error_of({.name = "g", .inputs = {h_}, .outputs = {y}, .variants = {{.overwrites = h_}}}),
      "no error");
}

TEST_F(BuilderTest, RefusesToOverwriteASmallerInput) {
  const TensorId y = tensor("y", 65);
  EXPECT_EQ(
      error_of({.name = "g", .inputs = {h_}, .outputs = {y}, .variants = {{.overwrites = h_}}}),
      "graph 'g': op 'g' variant '': overwrites tensor 2 'h', which is smaller than the "
      "output");
}

TEST_F(BuilderTest, RefusesToOverwriteWhatItDoesNotRead) {
  const TensorId y = tensor("y");
  EXPECT_EQ(error_of({.name = "g",
                      .inputs = {h_, x_},
                      .outputs = {y},
                      .variants = {{.reads = {{x_}}, .overwrites = h_}}}),
            "graph 'g': op 'g' variant '': overwrites tensor 2 'h', which it does not read");
}

TEST_F(BuilderTest, RefusesToOverwriteAFixedTensor) {
  const TensorId y = tensor("y");
  EXPECT_EQ(
      error_of({.name = "g", .inputs = {x_}, .outputs = {y}, .variants = {{.overwrites = x_}}}),
      "graph 'g': op 'g' variant '': overwrites the fixed tensor 0 'x'");
}

TEST_F(BuilderTest, RefusesToOverwriteWithoutAnOutput) {
  EXPECT_EQ(
      error_of({.name = "g", .inputs = {h_}, .variants = {{.overwrites = h_}}}),
      "graph 'g': op 'g' variant '': overwrites tensor 2 'h', but the op has no output to put "
      "there");
}

TEST_F(BuilderTest, RefusesATensorThatNoOpMakes) {
  tensor("y", 4, TensorKind::kGradient);
  EXPECT_EQ(error(), "graph 'g': tensor 3 'y' of kind gradient is made by no op");
}

TEST_F(BuilderTest, KeepsTheFirstMistake) {
  tensor("bad", -1);
  builder_.add_op({.name = "g", .inputs = {TensorId(99)}});
  tensor("worse", -2);
  EXPECT_THAT(error(), HasSubstr("'bad'"));
}

TEST(Builder, RefusesAnEmptyGraph) {
  EXPECT_EQ(GraphBuilder("g").build().error().message, "graph 'g': has no ops");
}

TEST(Builder, NamesOfKindsAndPhasesComeBack) {
  for (const char* name : {"input", "param", "state", "activation", "gradient", "output"}) {
    EXPECT_EQ(to_string(*parse_tensor_kind(name)), name);
  }
  for (const char* name : {"forward", "loss", "backward", "update"}) {
    EXPECT_EQ(to_string(*parse_phase(name)), name);
  }
  EXPECT_FALSE(parse_phase("").ok());
}

TEST(Graph, TakesOtherCosts) {
  GraphBuilder builder("g");
  builder.add_op({.name = "f", .variants = {{.cost = 1}, {.cost = 2}}});
  builder.add_op({.name = "g", .variants = {{.cost = 3}}});
  const auto graph = std::move(builder).build();
  const std::vector<double> cost{10, 20, 30};
  const std::vector<double> rerun{1, 2, 3};
  const Graph other = graph->with_costs(cost, rerun, CostUnit::kSecond);
  EXPECT_EQ(other.base_cost(), 40);  // the default variants: 10 + 30
  EXPECT_EQ(other.cost(VariantId(1)), 20);
  EXPECT_EQ(other.rerun_cost(VariantId(2)), 3);
  EXPECT_EQ(other.cost_unit(), CostUnit::kSecond);
  EXPECT_EQ(other.fingerprint(), graph->fingerprint());
}

// A plan for a graph without the group may be none for the graph with it.
TEST(Graph, FingerprintDependsOnChoiceGroups) {
  const auto make = [](ChoiceGroupId group) {
    GraphBuilder builder("g");
    const TensorId t = builder.add_tensor({.name = "t", .bytes = 4});
    builder.add_op({.name = "f", .outputs = {t}, .choice_group = group});
    return std::move(builder).build()->fingerprint();
  };
  EXPECT_EQ(make({}), make({}));
  EXPECT_NE(make({}), make(ChoiceGroupId(0)));
}

TEST(Graph, FingerprintDependsOnSizesNotOnNames) {
  const auto make = [](const char* name, Bytes bytes, double cost) {
    GraphBuilder builder(name);
    builder.add_simple_op(name, name, Phase::kForward, {}, bytes, TensorKind::kActivation, cost);
    return std::move(builder).build()->fingerprint();
  };
  EXPECT_EQ(make("a", 4, 1), make("b", 4, 2));
  EXPECT_NE(make("a", 4, 1), make("a", 5, 1));
}

}  // namespace
}  // namespace regen
