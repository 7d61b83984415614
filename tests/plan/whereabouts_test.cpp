#include "regen/plan/whereabouts.h"

#include <gtest/gtest.h>

#include "regen/graph/builder.h"

namespace regen {
namespace {

// a, b and c are made one after another, y reads them all.
Graph four_ops() {
  GraphBuilder builder("four");
  std::vector<TensorId> made;
  for (const char* name : {"a", "b", "c"}) {
    made.push_back(
        builder.add_simple_op(name, "op", Phase::kForward, {}, 10, TensorKind::kActivation, 1));
  }
  builder.add_simple_op("y", "op", Phase::kForward, made, 1, TensorKind::kOutput, 1);
  return std::move(builder).build().value();
}

// a goes to the host and comes back, b is dropped and made again.
Plan moved_and_made_again() {
  const TensorId a(0), b(1);
  return {.steps = {Step::compute(OpId(0)), Step::offload(a), Step::compute(OpId(1)),
                    Step::release(a), Step::release(b), Step::compute(OpId(2)), Step::fetch(a),
                    Step::compute(OpId(1)), Step::compute(OpId(3))}};
}

TEST(Whereabouts, SaysHowEachTensorComesBack) {
  const Graph graph = four_ops();
  const Plan plan = moved_and_made_again();
  const auto at_c = whereabouts(graph, plan, OpId(2));
  EXPECT_EQ(at_c[TensorId(0)], Whereabouts::kMoved);
  EXPECT_EQ(at_c[TensorId(1)], Whereabouts::kMadeAgain);
  EXPECT_EQ(at_c[TensorId(2)], Whereabouts::kNotMade);
  const auto at_y = whereabouts(graph, plan, OpId(3));
  for (std::size_t t = 0; t < 3; ++t) EXPECT_EQ(at_y[TensorId(t)], Whereabouts::kHeld);
  const auto at_b = whereabouts(graph, plan, OpId(1));
  EXPECT_EQ(at_b[TensorId(0)], Whereabouts::kHeld);
}

TEST(Whereabouts, WhatNobodyWantsAgainIsGone) {
  const Graph graph = four_ops();
  Plan plan = moved_and_made_again();
  plan.steps.resize(6);  // up to c
  EXPECT_EQ(whereabouts(graph, plan, OpId(2))[TensorId(0)], Whereabouts::kGone);
}

TEST(KeepsOrder, LooksAtFirstRunsOnly) {
  EXPECT_TRUE(keeps_order(moved_and_made_again()));
  EXPECT_FALSE(keeps_order({.steps = {Step::compute(OpId(1)), Step::compute(OpId(0))}}));
}

}  // namespace
}  // namespace regen
