#include "regen/plan/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/plan/validate.h"

namespace regen {
namespace {

using ::testing::HasSubstr;

// x (5, fixed) -> op 0 -> a (40) -> op 1 -> b (30) -> op 2 -> c (20), which reads a too.
// Op 1 has a workspace of 7 and may overwrite a (variant 1); re-runs of op 0 cost 2, not 3.
struct Chain {
  TensorId x{0}, a{1}, b{2}, c{3};
  OpId first{0}, second{1}, third{2};
  Graph graph = make();

  static Graph make() {
    GraphBuilder builder("chain");
    const TensorId in = builder.add_tensor({.name = "x", .bytes = 5, .kind = TensorKind::kInput});
    const TensorId one = builder.add_tensor({.name = "a", .bytes = 40});
    const TensorId two = builder.add_tensor({.name = "b", .bytes = 30});
    const TensorId three =
        builder.add_tensor({.name = "c", .bytes = 20, .kind = TensorKind::kOutput});
    builder.add_op({.name = "first",
                    .inputs = {in},
                    .outputs = {one},
                    .variants = {{.cost = 3, .rerun_cost = 2}}});
    builder.add_op({.name = "second",
                    .inputs = {one},
                    .outputs = {two},
                    .variants = {{.cost = 1, .workspace = 7},
                                 {.cost = 1, .workspace = 7, .overwrites = one}}});
    builder.add_op({.name = "third", .inputs = {one, two}, .outputs = {three}});
    return std::move(builder).build().value();
  }
};

Bytes total(const Explanation& e) {
  Bytes sum = e.fixed_bytes + e.workspace_bytes + e.unused_bytes;
  for (const LiveTensor& item : e.live) sum += item.bytes;
  return sum;
}

TEST(ExplainTest, SaysWhatIsLiveAtThePeakAndWhy) {
  const Chain n;
  const Plan plan{
      .steps = {Step::compute(n.first), Step::compute(n.second), Step::compute(n.third)}};
  const Explanation e = explain(n.graph, plan);
  EXPECT_EQ(e.peak_bytes, 95);
  EXPECT_EQ(e.peak_step, 2u);
  EXPECT_EQ(total(e), 95);
  ASSERT_EQ(e.live.size(), 3u);
  EXPECT_EQ(e.live[0], (LiveTensor{n.a, 40, Provenance::kFirstRun, 0, 2, 2}));
  EXPECT_EQ(e.live[1], (LiveTensor{n.b, 30, Provenance::kFirstRun, 1, 2, 2}));
  EXPECT_EQ(e.live[2], (LiveTensor{n.c, 20, Provenance::kFirstRun, 2, std::nullopt, std::nullopt}));
  EXPECT_TRUE(e.recomputed.empty());
  EXPECT_TRUE(e.moved.empty());
  EXPECT_EQ(e.kept[0], (Kept{n.a, 0, 3}));
}

TEST(ExplainTest, TellsRecomputesFetchesAndOverwritesApart) {
  const Chain n;
  // Step 6 computes with a (from a re-run), b (fetched) and c: 5 + 40 + 30 + 20.
  const Plan plan{.steps = {Step::compute(n.first), Step::compute(n.second, 1), Step::offload(n.b),
                            Step::release(n.b), Step::compute(n.first), Step::fetch(n.b),
                            Step::compute(n.third), Step::release(n.a), Step::compute(n.first),
                            Step::release(n.a)}};
  const Explanation e = explain(n.graph, plan);
  EXPECT_EQ(e.peak_step, 6u);
  EXPECT_EQ(total(e), e.peak_bytes);
  ASSERT_EQ(e.live.size(), 3u);
  EXPECT_EQ(e.live[0], (LiveTensor{n.a, 40, Provenance::kRecompute, 4, 6, 6}));
  EXPECT_EQ(e.live[1], (LiveTensor{n.b, 30, Provenance::kFetch, 5, 6, 6}));
  EXPECT_EQ(e.recomputed, (std::vector{Recomputed{n.first, 2, 4.0}}));
  EXPECT_EQ(e.moved, (std::vector{Moved{n.b, 1, 1, 60}}));
}

TEST(ExplainTest, AnOverwrittenInputCountsOnceAtThePeak) {
  GraphBuilder builder("in place");
  const TensorId a =
      builder.add_simple_op("a", "", Phase::kForward, {}, 40, TensorKind::kActivation, 1);
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 40});
  builder.add_op({.name = "b",
                  .inputs = {a},
                  .outputs = {b},
                  .variants = {{.workspace = 7, .overwrites = a}}});
  const Graph graph = std::move(builder).build().value();
  const Explanation e = explain(graph, {.steps = {Step::compute(OpId(0)), Step::compute(OpId(1))}});
  EXPECT_EQ(e.peak_bytes, 47);
  EXPECT_EQ(e.workspace_bytes, 7);
  ASSERT_EQ(e.live.size(), 1u);
  EXPECT_EQ(e.live[0].tensor, a);
  EXPECT_EQ(total(e), 47);
}

TEST(ExplainTest, GapsBetweenAddressesAreUnused) {
  const Chain n;
  const Plan plan{
      .steps = {Step::compute(n.first), Step::compute(n.second), Step::compute(n.third)},
      .addresses = {{0, 50, 40, 100}}};  // a, b, second's workspace, c
  const Explanation e = explain(n.graph, plan);
  EXPECT_EQ(e.peak_bytes, 125);
  EXPECT_EQ(e.unused_bytes, 30);
  EXPECT_THAT(to_text(n.graph, plan, e), HasSubstr("30  unused between addresses"));
}

TEST(ExplainTest, TheTextIsAnAlignedTable) {
  const Chain n;
  const Plan plan{
      .steps = {Step::compute(n.first), Step::compute(n.second), Step::compute(n.third)}};
  const std::string text = to_text(n.graph, plan, explain(n.graph, plan), 2);
  EXPECT_EQ(text, R"(peak 95 bytes (95 B) at step 2: compute 2 'third'
  bytes
      5  fixed: inputs, parameters, state
     90  in 3 tensors
      0  workspace of the op

On the device at the peak
  bytes  tensor  came by    made at step           next use              last use
     40  1 'a'   first run  0: compute 0 'first'   2: compute 2 'third'  2: compute 2 'third'
     30  2 'b'   first run  1: compute 1 'second'  2: compute 2 'third'  2: compute 2 'third'
  and 1 more

Kept longest
  steps  tensor  bytes  made at step
      3  1 'a'   40     0: compute 0 'first'
      2  2 'b'   30     1: compute 1 'second'
  and 1 more
)");
}

TEST(ExplainTest, TheJsonHoldsTheSame) {
  const Chain n;
  const Plan plan{.steps = {Step::compute(n.first), Step::offload(n.a), Step::compute(n.second),
                            Step::compute(n.third), Step::compute(n.first)}};
  const Json json = to_json(n.graph, plan, explain(n.graph, plan));
  EXPECT_EQ(json["peak_bytes"], 95);
  EXPECT_EQ(json["live"].size(), 3u);
  EXPECT_EQ(json["live"][0]["name"], "a");
  EXPECT_EQ(json["live"][0]["made_by"], "compute 0 'first'");
  EXPECT_EQ(json["live"][2]["next_use_step"], nullptr);
  EXPECT_EQ(json["recomputed"][0]["cost"], 2.0);
  EXPECT_EQ(json["moved"][0]["bytes"], 40);
  EXPECT_EQ(json["kept"][0]["left_step"], 5);
}

TEST(StructuralBoundTest, IsTheNeediestOpInItsLeastVariant) {
  const Chain n;
  // first: 5 + 40; second: 5 + 40 + 7 in place (30 more otherwise); third: 5 + 40 + 30 + 20.
  const StructuralBound bound = structural_bound(n.graph);
  EXPECT_EQ(bound.bytes, 95);
  EXPECT_EQ(bound.op, n.third);
  EXPECT_EQ(bound.live, (std::vector{n.a, n.b, n.c}));
  EXPECT_EQ(to_json(n.graph, bound)["live"][1]["name"], "b");
}

TEST(StructuralBoundTest, AnInPlaceVariantNeedsItsInputOnce) {
  GraphBuilder builder("in place");
  const TensorId a =
      builder.add_simple_op("a", "", Phase::kForward, {}, 40, TensorKind::kActivation, 1);
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 40});
  builder.add_op({.name = "b", .inputs = {a}, .outputs = {b}, .variants = {{}, {.overwrites = a}}});
  const Graph graph = std::move(builder).build().value();
  EXPECT_EQ(structural_bound(graph).bytes, 40);
}

TEST(StructuralBoundTest, AllOutputsTogetherMayBeTheBound) {
  GraphBuilder builder("outputs");
  builder.add_simple_op("a", "", Phase::kForward, {}, 40, TensorKind::kOutput, 1);
  builder.add_simple_op("b", "", Phase::kForward, {}, 50, TensorKind::kOutput, 1);
  const Graph graph = std::move(builder).build().value();
  const StructuralBound bound = structural_bound(graph);
  EXPECT_EQ(bound.bytes, 90);
  EXPECT_FALSE(bound.op.valid());
  EXPECT_THAT(explain_infeasible(graph, 89).message,
              HasSubstr("the outputs of the step need together 90 bytes (0 fixed, 0 workspace, "
                        "tensor 1 'b' (50), 0 'a' (40))"));
}

TEST(InfeasibleTest, NamesOpTensorsAndWhatIsMissing) {
  const Chain n;
  const Infeasibility below = explain_infeasible(n.graph, 94);
  EXPECT_TRUE(below.proven);
  EXPECT_EQ(below.message,
            "no plan fits into 94 bytes: op 2 'third' needs at least 95 bytes (5 fixed, 0 "
            "workspace, tensor 1 'a' (40), 2 'b' (30), 3 'c' (20)), 1 byte over the budget");
  // What lies beside the plan may take more than the whole budget.
  EXPECT_THAT(
      explain_infeasible(n.graph, -1234).message,
      ::testing::StartsWith("no plan fits into what is left of the budget: it is exceeded by "
                            "1,234 bytes without the plan: op 2 'third' needs"));

  const Infeasibility at = explain_infeasible(n.graph, 95);
  EXPECT_FALSE(at.proven);
  EXPECT_THAT(at.message, HasSubstr("not ruled out"));
}

}  // namespace
}  // namespace regen
