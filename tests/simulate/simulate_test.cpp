// Small cases on a device of one byte per unit of time, each expectation derived by hand.
#include "regen/simulate/simulate.h"

#include <gtest/gtest.h>

#include "regen/graph/builder.h"

namespace regen {
namespace {

constexpr Link kSlow{.to_host = 1, .to_device = 1, .both = 2};

// a (4 bytes, cost 3) -> b (2 bytes, cost 5) -> c (1 byte, cost 2, reads a and b).
Graph three_ops() {
  GraphBuilder builder("three");
  const TensorId a =
      builder.add_simple_op("a", "f", Phase::kForward, {}, 4, TensorKind::kActivation, 3);
  const TensorId b =
      builder.add_simple_op("b", "f", Phase::kForward, {a}, 2, TensorKind::kActivation, 5);
  builder.add_simple_op("c", "f", Phase::kForward, {a, b}, 1, TensorKind::kOutput, 2);
  return std::move(builder).build().value();
}

const OpId kA(0), kB(1), kC(2);
const TensorId kTa(0), kTb(1);

Simulation run(const Graph& graph, std::vector<Step> steps, const SimulateOptions& options = {}) {
  const Plan plan{.steps = std::move(steps)};
  const auto simulation = simulate(graph, plan, options);
  EXPECT_TRUE(simulation.ok()) << (simulation.ok() ? "" : simulation.error().message);
  return simulation.ok() ? *simulation : Simulation{};
}

TEST(Simulate, KeepingEverythingCostsTheSumAndHoldsEverything) {
  const Simulation s = run(three_ops(), {Step::compute(kA), Step::compute(kB), Step::compute(kC)});
  EXPECT_EQ(s.cost, 10);  // 3 + 5 + 2
  EXPECT_EQ(s.overhead, 0);
  EXPECT_EQ(s.peak_bytes, 7);  // 4 + 2 + 1
  EXPECT_EQ(s.peak_step, 2u);
  EXPECT_EQ(s.recomputed, 0u);
}

TEST(Simulate, ARecomputationCostsItsRerun) {
  const Simulation s = run(three_ops(), {Step::compute(kA), Step::compute(kB), Step::release(kTa),
                                         Step::compute(kA), Step::compute(kC)});
  EXPECT_EQ(s.cost, 13);  // a twice
  EXPECT_EQ(s.recomputed, 1u);
  EXPECT_EQ(s.peak_bytes, 7);
}

// time      0  1  2  3  4  5  6  7  8  9 10 11 12 13 14
// compute   a------|b------------|  wait   |c---|
// to host          |a out-----|
// to device                       |a back----|
//
// a leaves in 3..7, while b runs in 3..8; the release finds it gone. The fetch joins at 8 and
// ends at 12; c runs in 12..14.
TEST(Simulate, ACopyOverlapsComputeAndAReaderWaitsForTheFetch) {
  const Simulation s = run(three_ops(),
                           {Step::compute(kA), Step::offload(kTa), Step::compute(kB),
                            Step::release(kTa), Step::fetch(kTa), Step::compute(kC)},
                           {.link = kSlow, .record = true});
  EXPECT_EQ(s.cost, 14);
  EXPECT_EQ(s.stall, 4);
  EXPECT_EQ(s.offloaded_bytes, 4);
  EXPECT_EQ(s.fetched_bytes, 4);
  EXPECT_EQ(s.host_peak_bytes, 4);
  EXPECT_EQ(s.records[1].start, 3);
  EXPECT_EQ(s.records[1].end, 7);
  EXPECT_EQ(s.records[4].start, 8);
  EXPECT_EQ(s.records[4].end, 12);
  EXPECT_EQ(s.records[5].host_bytes, 4);  // counted up to and including the step that waits
}

// The release right after the offload waits for it: c = 3 + 4, then b runs in 7..12.
TEST(Simulate, AReleaseWaitsForItsOffload) {
  const Graph graph = three_ops();
  const Simulation s = run(graph,
                           {Step::compute(kA), Step::compute(kB), Step::offload(kTa),
                            Step::release(kTa), Step::fetch(kTa), Step::compute(kC)},
                           {.link = kSlow});
  // a 0..3, b 3..8, out 8..12, back 12..16, c 16..18.
  EXPECT_EQ(s.cost, 18);
  EXPECT_EQ(s.stall, 8);
}

// x and y, 6 bytes each, leave and come at the same time over a link of 1 byte each way and 1.5
// together: both move at 0.75 until one ends.
TEST(Simulate, BothDirectionsShareAJointLimit) {
  GraphBuilder builder("two");
  const TensorId x =
      builder.add_simple_op("x", "f", Phase::kForward, {}, 6, TensorKind::kActivation, 1);
  const TensorId y =
      builder.add_simple_op("y", "f", Phase::kForward, {}, 6, TensorKind::kActivation, 1);
  builder.add_simple_op("z", "f", Phase::kForward, {x, y}, 1, TensorKind::kOutput, 1);
  const Graph graph = std::move(builder).build().value();
  const Simulation s =
      run(graph,
          {Step::compute(OpId(0)), Step::offload(x), Step::release(x), Step::compute(OpId(1)),
           Step::offload(y), Step::fetch(x), Step::compute(OpId(2))},
          {.link = {.to_host = 1, .to_device = 1, .both = 1.5}, .record = true});
  // x 0..1, out 1..7, y 7..8; from 8 on y goes out and x comes back, 6 / 0.75 = 8 long; z 16..17.
  EXPECT_EQ(s.records[4].end, 16);
  EXPECT_EQ(s.records[5].end, 16);
  EXPECT_EQ(s.cost, 17);
}

TEST(Simulate, WorkspaceCountsOnlyWhileTheOpRuns) {
  GraphBuilder builder("workspace");
  const TensorId a = builder.add_tensor({.name = "a", .bytes = 4});
  builder.add_op(
      {.name = "a", .type = "f", .outputs = {a}, .variants = {{.cost = 1, .workspace = 9}}});
  builder.add_simple_op("b", "f", Phase::kForward, {a}, 2, TensorKind::kOutput, 1);
  const Graph graph = std::move(builder).build().value();
  const Simulation s =
      run(graph, {Step::compute(OpId(0)), Step::compute(OpId(1))}, {.record = true});
  EXPECT_EQ(s.records[0].device_bytes, 13);
  EXPECT_EQ(s.records[1].device_bytes, 6);
  EXPECT_EQ(s.peak_bytes, 13);
}

TEST(Simulate, AddressesDecideThePeak) {
  const Graph graph = three_ops();
  Plan plan{.steps = {Step::compute(kA), Step::compute(kB), Step::compute(kC)}};
  plan.addresses = {{0, 10, 4}};
  EXPECT_EQ(simulate(graph, plan)->peak_bytes, 12);  // b ends at 10 + 2
  plan.addresses = {{0, 10}};
  EXPECT_FALSE(simulate(graph, plan).ok());
}

TEST(Simulate, RefusesWhatHasNoMeaning) {
  const Graph graph = three_ops();
  const auto message = [&](std::vector<Step> steps, Link link = kSlow) {
    const auto result = simulate(graph, Plan{.steps = std::move(steps)}, {.link = link});
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_EQ(message({Step::compute(kB)}),
            "step 0 (compute 1 'b'): tensor 0 'a' is not on the device");
  EXPECT_EQ(message({Step::compute(OpId(9))}), "step 0 (compute 9): there is no such op");
  EXPECT_EQ(message({Step::compute(kA, 1)}),
            "step 0 (compute 0 'a' variant 1): there is no such variant");
  EXPECT_EQ(message({Step::compute(kA), Step::fetch(kTa)}),
            "step 1 (fetch 0 'a'): it is on the device already");
  EXPECT_EQ(message({Step::fetch(kTb)}), "step 0 (fetch 1 'b'): it has no host copy");
  EXPECT_EQ(message({Step::compute(kA), Step::offload(kTa), Step::offload(kTa)}),
            "step 2 (offload 0 'a'): it has a host copy already");
  EXPECT_EQ(
      message({Step::compute(kA), Step::offload(kTa)}, Link{}),
      "step 1 (offload 0 'a') moves a tensor, but the device has no link to the host, expected "
      "one that has (--device)");
}

}  // namespace
}  // namespace regen
