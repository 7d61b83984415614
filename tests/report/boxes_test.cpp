#include "regen/report/boxes.h"

#include <gtest/gtest.h>

#include <map>

#include "regen/graph/builder.h"
#include "regen/plan/addresses.h"
#include "regen/simulate/simulate.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/plans/random_plan.h"

namespace regen::report {
namespace {

constexpr Link kLink{.to_host = 2, .to_device = 5, .both = 7};

// A random step with a plan that has addresses, if a walk came through.
struct Sample {
  Graph graph;
  Plan plan;
  Simulation simulation;
};

std::optional<Sample> sample(std::uint64_t seed) {
  Random random(testing::first_seed() + seed);
  Graph graph = testing::random_training_graph(random, {.max_layers = 8});
  std::optional<Plan> plan = testing::random_plan(graph, random);
  if (!plan) return std::nullopt;
  testing::add_addresses(graph, random, *plan);
  auto simulation = simulate(graph, *plan, {.link = kLink, .record = true}).value();
  return Sample{std::move(graph), std::move(*plan), std::move(simulation)};
}

bool lives(const Box& box, std::size_t step) {
  return box.from <= step && step < box.to;
}

// A box of no bytes shares none.
bool overlap(const Box& a, const Box& b) {
  return a.bytes > 0 && b.bytes > 0 && a.from < b.to && b.from < a.to &&
         a.address < b.address + b.bytes && b.address < a.address + a.bytes;
}

TEST(Boxes, TheirBytesAreWhatTheJudgeCountsInEachStep) {
  int checked = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const auto drawn = sample(seed);
    if (!drawn) continue;
    const std::vector<Box> found = boxes(drawn->graph, drawn->plan, *drawn->plan.addresses);
    for (std::size_t step = 0; step < drawn->plan.steps.size(); ++step) {
      Bytes sum = drawn->graph.fixed_bytes();
      for (const Box& box : found) sum += lives(box, step) ? box.bytes : 0;
      ASSERT_EQ(sum, drawn->simulation.records[step].device_bytes)
          << "seed " << seed << " step " << step;
    }
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

TEST(Boxes, NeverOverlap) {
  for (std::uint64_t seed = 100; seed < 140; ++seed) {
    const auto drawn = sample(seed);
    if (!drawn) continue;
    const std::vector<Box> found = boxes(drawn->graph, drawn->plan, *drawn->plan.addresses);
    for (std::size_t i = 0; i < found.size(); ++i) {
      for (std::size_t k = i + 1; k < found.size(); ++k) {
        ASSERT_FALSE(overlap(found[i], found[k])) << "seed " << seed << ": " << i << " and " << k;
      }
    }
  }
}

// Independent of the walk: the lifetimes by which addresses are given.
TEST(Boxes, EachAllocationIsCoveredByBoxesThatFollowEachOther) {
  for (std::uint64_t seed = 200; seed < 260; ++seed) {
    const auto drawn = sample(seed);
    if (!drawn) continue;
    const std::vector<Lifetime> lifetimes = allocation_lifetimes(drawn->graph, drawn->plan);
    std::map<std::size_t, std::vector<Box>> of_allocation;
    for (const Box& box : boxes(drawn->graph, drawn->plan, *drawn->plan.addresses)) {
      of_allocation[box.allocation].push_back(box);
    }
    ASSERT_EQ(of_allocation.size(), lifetimes.size());
    for (const auto& [allocation, parts] : of_allocation) {
      EXPECT_EQ(static_cast<std::int64_t>(parts.front().from), lifetimes[allocation].lower);
      EXPECT_EQ(parts.front().bytes, lifetimes[allocation].size);
      for (std::size_t i = 1; i < parts.size(); ++i) EXPECT_EQ(parts[i].from, parts[i - 1].to);
      // One that takes over in the last step has no step to count in.
      EXPECT_LE(static_cast<std::int64_t>(parts.back().to), lifetimes[allocation].upper);
    }
  }
}

// x (8 bytes) -> relu in place -> y (8) -> z (2, with 5 bytes of workspace):
//
//   step        0   1   2   3
//   x           #####            [0, 2): it is there while relu runs
//   y                   ###      [2, 3): in the memory of x
//   z                   #####    [2, 4)
//   workspace           #        [2, 3)
TEST(Boxes, WhatTakesOverStandsBehindWhatItOverwrites) {
  GraphBuilder builder("in place");
  const TensorId x =
      builder.add_simple_op("x", "f", Phase::kForward, {}, 8, TensorKind::kActivation, 1);
  const TensorId y = builder.add_tensor({.name = "y", .bytes = 8});
  builder.add_op({.name = "relu",
                  .type = "relu",
                  .inputs = {x},
                  .outputs = {y},
                  .variants = {{.cost = 1, .overwrites = x}}});
  const TensorId z = builder.add_tensor({.name = "z", .bytes = 2, .kind = TensorKind::kOutput});
  builder.add_op({.name = "z",
                  .type = "f",
                  .inputs = {y},
                  .outputs = {z},
                  .variants = {{.cost = 1, .workspace = 5}}});
  const Graph graph = std::move(builder).build().value();
  const Plan plan{.steps = {Step::compute(OpId(0)), Step::compute(OpId(1)), Step::compute(OpId(2)),
                            Step::release(y)}};
  const std::vector<Bytes> addresses{0, 8, 10};
  const std::vector<Box> expected{
      {.tensor = x, .op = OpId(0), .from = 0, .to = 2, .allocation = 0, .address = 0, .bytes = 8},
      {.tensor = y, .op = OpId(1), .from = 2, .to = 3, .allocation = 0, .address = 0, .bytes = 8},
      {.tensor = z, .op = OpId(2), .from = 2, .to = 4, .allocation = 1, .address = 8, .bytes = 2},
      {.op = OpId(2), .from = 2, .to = 3, .allocation = 2, .address = 10, .bytes = 5}};
  EXPECT_EQ(boxes(graph, plan, addresses), expected);
}

}  // namespace
}  // namespace regen::report
