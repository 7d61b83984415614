#include "regen/plan/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "regen/graph/builder.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

// A training step of one weight with every feature that the rules speak of:
//
//   op 0 fc    reads w        makes 2 'a' (40 bytes); workspace 5
//   op 1 relu  reads a        makes 3 'b' (30); variant 1 overwrites a; variant 2 also makes 4 'm'
//   op 2 loss  reads b        makes 5 'g' (20); not recomputable
//   op 3 grad  reads g, a     makes 6 'dw' (10); variant 1 reads g and m instead
//   op 4 step  reads dw       changes w
//   op 5 norm  reads w        makes 7 'n' (1), an output
//
// Fixed: 0 'x' (3) and 1 'w' (100).
struct Example {
  TensorId x, w, a, b, m, g, dw, n;
  OpId fc{0}, relu{1}, loss{2}, grad{3}, step{4}, norm{5};
  Graph graph = make();

 private:
  Graph make() {
    GraphBuilder builder("example");
    x = builder.add_tensor({.name = "x", .bytes = 3, .kind = TensorKind::kInput});
    w = builder.add_tensor({.name = "w", .bytes = 100, .kind = TensorKind::kParam});
    a = builder.add_tensor({.name = "a", .bytes = 40});
    b = builder.add_tensor({.name = "b", .bytes = 30});
    m = builder.add_tensor({.name = "m", .bytes = 4});
    g = builder.add_tensor({.name = "g", .bytes = 20, .kind = TensorKind::kGradient});
    dw = builder.add_tensor({.name = "dw", .bytes = 10, .kind = TensorKind::kGradient});
    n = builder.add_tensor({.name = "n", .bytes = 1, .kind = TensorKind::kOutput});
    builder.add_op({.name = "fc",
                    .inputs = {x, w},
                    .outputs = {a},
                    .variants = {{.cost = 1, .workspace = 5}}});
    builder.add_op({.name = "relu",
                    .inputs = {a},
                    .outputs = {b},
                    .variants = {{}, {.overwrites = a}, {.extra_outputs = {m}}}});
    builder.add_op({.name = "loss", .inputs = {b}, .outputs = {g}, .recomputable = false});
    builder.add_op({.name = "grad",
                    .inputs = {g, a},
                    .outputs = {dw},
                    .variants = {{}, {.reads = std::vector{g, m}}}});
    builder.add_op({.name = "step", .inputs = {dw}, .mutates = {w}});
    builder.add_op({.name = "norm", .inputs = {w}, .outputs = {n}});
    return std::move(builder).build().value();
  }
};

class ValidateTest : public ::testing::Test {
 protected:
  // Runs everything once and keeps everything.
  std::vector<Step> keep_all() const {
    std::vector<Step> steps;
    for (OpId op : example_.graph.ops()) steps.push_back(Step::compute(op));
    return steps;
  }
  Validation accept(const Plan& plan, const ValidationLimits& limits = {}) const {
    const auto result = validate(example_.graph, plan, limits);
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return result.ok() ? *result : Validation{};
  }
  std::string refuse(const Plan& plan, const ValidationLimits& limits = {}) const {
    const auto result = validate(example_.graph, plan, limits);
    EXPECT_FALSE(result.ok());
    if (result.ok()) return "accepted";
    EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
    return result.error().message;
  }
  std::string refuse(std::vector<Step> steps) const {
    return refuse(Plan{.steps = std::move(steps)});
  }

  Example example_;
};

TEST_F(ValidateTest, KeepingEverythingIsAcceptedWithItsPeak) {
  // a, b, g, dw and n are all live at the last step: 40 + 30 + 20 + 10 + 1.
  const Validation expected{.peak_bytes = 204, .activation_peak_bytes = 101, .peak_step = 5};
  EXPECT_EQ(accept({.steps = keep_all()}), expected);
}

TEST_F(ValidateTest, WorkspaceCountsOnlyWhileItsOpRuns) {
  const auto& e = example_;
  // fc: 40 + 5; relu in place: 40; loss: 30 + 20; then b goes and fc makes a again: 20 + 40 + 5;
  // grad: 60 + 10; norm: 70 + 1.
  const Plan plan{.steps = {Step::compute(e.fc), Step::compute(e.relu, 1), Step::compute(e.loss),
                            Step::release(e.b), Step::compute(e.fc), Step::compute(e.grad),
                            Step::compute(e.step), Step::compute(e.norm)}};
  const Validation expected{.peak_bytes = 174, .activation_peak_bytes = 71, .peak_step = 7};
  EXPECT_EQ(accept(plan), expected);
  EXPECT_THAT(refuse(plan, {.budget = 103 + 70}), HasSubstr("step 7 (compute 5 'norm')"));
  EXPECT_THAT(refuse(plan, {.budget = 103 + 64}), HasSubstr("step 4 (compute 0 'fc'): takes 168"));
}

TEST_F(ValidateTest, ARerunWritesResidentTensorsWithoutNewBytes) {
  const auto& e = example_;
  std::vector<Step> steps = keep_all();
  // b is there already, only the mask of 4 bytes is new: 40 + 30 + 4 = 74, later 105.
  steps.insert(steps.begin() + 2, Step::compute(e.relu, 2));
  EXPECT_EQ(accept({.steps = steps}).activation_peak_bytes, 105);
}

TEST_F(ValidateTest, AHostCopyServesManyFetchesAndGoesWithTheUseAfterTheLast) {
  const auto& e = example_;
  const std::vector<Step> steps{
      Step::compute(e.fc),   Step::offload(e.a),   Step::compute(e.relu),  // host 40
      Step::release(e.a),    Step::fetch(e.a),     Step::release(e.a),     //
      Step::offload(e.b),                                                  // host 70
      Step::compute(e.loss), Step::fetch(e.a),     Step::compute(e.grad),  // the copy of a goes
      Step::offload(e.g),                                                  // host 30 + 20
      Step::offload(e.a),                                                  // host 90
      Step::compute(e.step), Step::compute(e.norm)};
  EXPECT_EQ(accept({.steps = steps}).host_peak_bytes, 90);
}

TEST_F(ValidateTest, AReleaseAlsoEndsTheHostCopyAfterItsLastFetch) {
  const auto& e = example_;
  std::vector<Step> steps{Step::compute(e.fc), Step::offload(e.a), Step::release(e.a),
                          Step::fetch(e.a),    Step::release(e.a), Step::compute(e.fc),
                          Step::offload(e.a)};
  for (OpId op : {e.relu, e.loss, e.grad, e.step, e.norm}) steps.push_back(Step::compute(op));
  EXPECT_EQ(accept({.steps = steps}).host_peak_bytes, 40);
}

TEST_F(ValidateTest, RefusesAnOffloadBetweenTheLastFetchAndItsUse) {
  const auto& e = example_;
  EXPECT_THAT(refuse({Step::compute(e.fc), Step::offload(e.a), Step::release(e.a), Step::fetch(e.a),
                      Step::offload(e.a)}),
              HasSubstr("step 4 (offload 2 'a'): tensor 2 'a' (40 bytes) has a host copy already"));
}

TEST_F(ValidateTest, RefusesReadsOfAbsentTensors) {
  const auto& e = example_;
  EXPECT_EQ(refuse({Step::compute(e.fc), Step::release(e.a), Step::compute(e.relu)}),
            "step 2 (compute 1 'relu'): reads tensor 2 'a' (40 bytes), which is not on the device "
            "(released at step 1)");
  EXPECT_THAT(refuse({Step::compute(e.fc), Step::compute(e.relu, 1), Step::compute(e.relu)}),
              HasSubstr("(overwritten at step 1)"));
  EXPECT_THAT(refuse({Step::compute(e.relu)}), HasSubstr("(no step so far makes it)"));
}

TEST_F(ValidateTest, AVariantNeedsOnlyWhatItReads) {
  const auto& e = example_;
  const std::vector<Step> steps{Step::compute(e.fc),      Step::compute(e.relu, 2),
                                Step::release(e.a),       Step::compute(e.loss),
                                Step::compute(e.grad, 1), Step::compute(e.step),
                                Step::compute(e.norm)};
  EXPECT_EQ(accept({.steps = steps}).activation_peak_bytes, 74);
}

TEST_F(ValidateTest, RefusesAnOverwriteWhoseOutputIsOnTheDevice) {
  const auto& e = example_;
  EXPECT_THAT(refuse({Step::compute(e.fc), Step::compute(e.relu), Step::compute(e.relu, 1)}),
              HasSubstr("overwrites tensor 2 'a' (40 bytes), but its output tensor 3 'b' (30 bytes)"
                        " is on the device already"));
}

TEST_F(ValidateTest, RefusesUnknownSubjects) {
  const auto& e = example_;
  EXPECT_EQ(refuse({Step::compute(OpId(6))}),
            "step 0 (compute 6): unknown op, expected an id below 6");
  EXPECT_EQ(refuse({Step::release(TensorId(8))}),
            "step 0 (release 8): unknown tensor, expected an id below 8");
  EXPECT_THAT(refuse({Step::compute(e.fc, 1)}), HasSubstr("unknown variant 1, the op has 1"));
  EXPECT_THAT(refuse({Step::compute(OpId::none())}), HasSubstr("unknown op"));
}

TEST_F(ValidateTest, RefusesStepsOnFixedTensors) {
  const auto& e = example_;
  for (const Step& step : {Step::offload(e.w), Step::release(e.w), Step::fetch(e.w)}) {
    EXPECT_THAT(refuse({step}), HasSubstr("tensor 1 'w' (100 bytes) is fixed (kind param)"));
  }
}

TEST_F(ValidateTest, RefusesCopiesThatCannotBe) {
  const auto& e = example_;
  EXPECT_THAT(refuse({Step::release(e.a)}), HasSubstr("is not on the device"));
  EXPECT_THAT(refuse({Step::offload(e.a)}), HasSubstr("is not on the device"));
  EXPECT_THAT(refuse({Step::fetch(e.a)}), HasSubstr("has no host copy"));
  EXPECT_THAT(refuse({Step::compute(e.fc), Step::offload(e.a), Step::fetch(e.a)}),
              HasSubstr("is on the device already"));
}

TEST_F(ValidateTest, RefusesForbiddenReruns) {
  const auto& e = example_;
  EXPECT_THAT(refuse({Step::compute(e.fc), Step::compute(e.relu), Step::compute(e.loss),
                      Step::compute(e.loss)}),
              HasSubstr("op 2 'loss' ran at step 2 and is not recomputable"));
  std::vector<Step> twice = keep_all();
  twice.insert(twice.begin() + 5, Step::compute(e.step));
  EXPECT_THAT(refuse(twice), HasSubstr("op 4 'step' ran at step 4 and changes tensor 1 'w' (100 "
                                       "bytes), so it runs exactly once"));
}

TEST_F(ValidateTest, ReadersOfAMutatedTensorStayOnTheirSideOfTheUpdate) {
  const auto& e = example_;
  std::vector<Step> late = keep_all();
  late.push_back(Step::compute(e.fc));
  EXPECT_THAT(refuse(late), HasSubstr("reads tensor 1 'w' (100 bytes) after op 4 'step' has "
                                      "changed it at step 4"));
  EXPECT_THAT(refuse({Step::compute(e.norm)}),
              HasSubstr("reads tensor 1 'w' (100 bytes) before op 4 'step' has changed it"));
}

TEST(ValidateMutationTest, TwoUpdatesOfOneTensorKeepTheirOrder) {
  GraphBuilder builder("updates");
  const TensorId w = builder.add_tensor({.name = "w", .bytes = 1, .kind = TensorKind::kParam});
  const OpId first = builder.add_op({.name = "first", .mutates = {w, w}});
  const OpId second = builder.add_op({.name = "second", .mutates = {w}});
  const Graph graph = std::move(builder).build().value();
  EXPECT_TRUE(validate(graph, {.steps = {Step::compute(first), Step::compute(second)}}).ok());
  EXPECT_THAT(validate(graph, {.steps = {Step::compute(second)}}).error().message,
              HasSubstr("changes tensor 0 'w' (1 byte) before op 0 'first' has changed it"));
}

TEST_F(ValidateTest, RefusesUnfinishedPlans) {
  const auto& e = example_;
  EXPECT_EQ(refuse(std::vector<Step>{}), "end of plan (0 steps): op 0 'fc' never runs");
  std::vector<Step> steps = keep_all();
  steps.push_back(Step::release(e.n));
  EXPECT_EQ(refuse(steps),
            "end of plan (7 steps): output tensor 7 'n' (1 byte) is not on the device (released "
            "at step 6)");
}

TEST_F(ValidateTest, BudgetsHoldToTheByte) {
  Plan plan{.steps = keep_all()};
  plan.steps.insert(plan.steps.begin() + 1, Step::offload(example_.a));
  accept(plan, {.budget = 204, .host_budget = 40});
  EXPECT_EQ(refuse(plan, {.budget = 203}),
            "step 6 (compute 5 'norm'): takes 204 bytes (103 of them fixed), 1 byte over the "
            "budget of 203 bytes");
  EXPECT_EQ(refuse(plan, {.host_budget = 39}),
            "step 1 (offload 2 'a'): host copies take 40 bytes with tensor 2 'a' (40 bytes), 1 "
            "byte over the host budget of 39 bytes");
}

TEST_F(ValidateTest, EveryBudgetBelowThePeakFailsCleanly) {
  const Plan plan{.steps = keep_all()};
  const Bytes peak = accept(plan).peak_bytes;
  for (Bytes budget = 0; budget < peak; ++budget) {
    EXPECT_THAT(refuse(plan, {.budget = budget}), HasSubstr("over the budget of"));
  }
  accept(plan, {.budget = peak});
}

TEST_F(ValidateTest, FingerprintsMustMatchUnlessUnknown) {
  Plan plan{.fingerprint = example_.graph.fingerprint(), .steps = keep_all()};
  accept(plan);
  plan.fingerprint ^= 1;
  EXPECT_THAT(refuse(plan), HasSubstr("plan was made for another graph"));
  plan.fingerprint = 0;
  accept(plan);
}

// Allocations of keep_all in order: a, fc's workspace, b, g, dw, n.
TEST_F(ValidateTest, AddressesDecideThePeak) {
  Plan plan{.steps = keep_all(), .addresses = {{10, 50, 50, 80, 0, 100}}};
  const Validation expected{.peak_bytes = 204, .activation_peak_bytes = 101, .peak_step = 5};
  EXPECT_EQ(accept(plan), expected);
  (*plan.addresses)[1] = 5;  // the workspace just fits below a, and dw may use its place later
  EXPECT_EQ(accept(plan), expected);
}

TEST_F(ValidateTest, RefusesOverlapsWithBothNamesAndRanges) {
  Plan plan{.steps = keep_all(), .addresses = {{10, 50, 49, 80, 0, 100}}};
  EXPECT_EQ(refuse(plan),
            "step 1 (compute 1 'relu'): tensor 3 'b' (30 bytes) at [49, 79) overlaps tensor 2 'a' "
            "(40 bytes) at [10, 50)");
  plan.addresses = {{10, 6, 50, 80, 0, 100}};
  EXPECT_THAT(refuse(plan), HasSubstr("the workspace at [6, 11) overlaps tensor 2 'a'"));
  plan.addresses = {{10, 50, 50, 80, 4, 100}};  // dw [4, 14) reaches into a
  EXPECT_THAT(refuse(plan), HasSubstr("step 3 (compute 3 'grad'): tensor 6 'dw'"));
}

TEST_F(ValidateTest, AnOverwrittenInputKeepsItsWholeRangeUntilTheStepEnds) {
  const auto& e = example_;
  // b takes over [0, 40) of a and needs [0, 30): g may use [30, 50) after that.
  Plan plan{.steps = {Step::compute(e.fc), Step::compute(e.relu, 1), Step::compute(e.loss),
                      Step::release(e.b), Step::compute(e.fc), Step::compute(e.grad),
                      Step::compute(e.step), Step::compute(e.norm)},
            .addresses = {{0, 40, 30, 50, 0, 0, 10}}};
  EXPECT_EQ(accept(plan).activation_peak_bytes, 90);
  (*plan.addresses)[2] = 29;
  EXPECT_THAT(refuse(plan), HasSubstr("at [29, 49) overlaps tensor 3 'b' (30 bytes) at [0, 30)"));
}

TEST_F(ValidateTest, RefusesAddressListsOfTheWrongForm) {
  Plan plan{.steps = keep_all(), .addresses = {{10, 50, 50, 80, 0}}};
  EXPECT_THAT(refuse(plan), HasSubstr("tensor 7 'n' (1 byte) has no address: the plan has only 5"));
  plan.addresses = {{10, 50, 50, 80, 0, 100, 0}};
  EXPECT_EQ(refuse(plan),
            "end of plan (6 steps): the steps make 6 allocations, but the plan has 7 addresses");
  plan.addresses = {{-1, 50, 50, 80, 0, 100}};
  EXPECT_THAT(refuse(plan), HasSubstr("address -1 of tensor 2 'a' (40 bytes) is out of range"));
  plan.addresses = {{std::numeric_limits<Bytes>::max(), 50, 50, 80, 0, 100}};
  EXPECT_THAT(refuse(plan), HasSubstr("is out of range"));
}

// Three ops 'f', 'g', 'h' of two variants each, of which the first and the last choose together.
Graph graph_with_a_group() {
  GraphBuilder builder("grouped");
  TensorId last;
  for (const char* name : {"f", "g", "h"}) {
    const TensorId made = builder.add_tensor({.name = name, .bytes = 10});
    OpSpec op{.name = name, .outputs = {made}, .variants = {{.workspace = 5}, {.cost = 1}}};
    if (last.valid()) op.inputs = {last};
    if (*name != 'g') op.choice_group = ChoiceGroupId(2);
    builder.add_op(std::move(op));
    last = made;
  }
  return std::move(builder).build().value();
}

TEST(ValidateChoiceTest, MembersOfAGroupRunInTheSameVariant) {
  const Graph graph = graph_with_a_group();
  const auto steps = [](std::size_t f, std::size_t g, std::size_t h) {
    return Plan{
        .steps = {Step::compute(OpId(0), f), Step::compute(OpId(1), g), Step::compute(OpId(2), h)}};
  };
  for (const std::size_t choice : {0, 1}) {
    EXPECT_TRUE(validate(graph, steps(choice, 0, choice)).ok());
    EXPECT_TRUE(validate(graph, steps(choice, 1, choice)).ok());
    const auto refused = validate(graph, steps(choice, 0, 1 - choice));
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message,
                HasSubstr("runs in variant " + std::to_string(1 - choice) +
                          " of choice group 2, expected variant " + std::to_string(choice) +
                          " as for op 0 'f' at step 0"));
  }
}

TEST(ValidateChoiceTest, SoDoReruns) {
  const Graph graph = graph_with_a_group();
  Plan plan{.steps = {Step::compute(OpId(0), 1), Step::compute(OpId(1), 0),
                      Step::compute(OpId(2), 1), Step::release(TensorId(0)),
                      Step::compute(OpId(0), 1)}};
  EXPECT_TRUE(validate(graph, plan).ok());
  plan.steps[4] = Step::compute(OpId(0), 0);
  EXPECT_FALSE(validate(graph, plan).ok());
}

TEST(ValidateMessageTest, NamesWithLineBreaksStillGiveOneLine) {
  GraphBuilder builder("two\nlines");
  builder.add_simple_op("a\nb", "", Phase::kForward, {}, 1, TensorKind::kActivation, 1);
  const Graph graph = std::move(builder).build().value();
  EXPECT_EQ(validate(graph, {}).error().message, "end of plan (0 steps): op 0 'a?b' never runs");
}

TEST(ValidateSpeedTest, AMillionStepsWithAddresses) {
  GraphBuilder builder("chain");
  TensorId last = builder.add_tensor({.name = "x", .bytes = 8, .kind = TensorKind::kInput});
  Plan plan;
  plan.addresses.emplace();
  constexpr std::size_t kOps = 1000;
  for (std::size_t i = 0; i < kOps; ++i) {
    last = builder.add_simple_op("op", "", Phase::kForward, {last}, 8, TensorKind::kActivation, 1);
    plan.steps.push_back(Step::compute(OpId(i)));
    plan.addresses->push_back(static_cast<Bytes>(8 * i));
  }
  for (std::size_t i = 0; plan.steps.size() < 1'000'000; i = (i + 7) % kOps) {
    const bool next_is_fixed = i == 0;  // op i reads the output of op i - 1, which stays
    plan.steps.push_back(Step::release(TensorId(i + 1)));
    plan.steps.push_back(Step::compute(OpId(next_is_fixed ? 0 : i)));
    plan.addresses->push_back(static_cast<Bytes>(8 * i));
  }
  const Graph graph = std::move(builder).build().value();
  const auto result = validate(graph, plan);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->peak_bytes, static_cast<Bytes>(8 * kOps + 8));
}

}  // namespace
}  // namespace regen
