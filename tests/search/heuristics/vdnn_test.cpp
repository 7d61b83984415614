#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/search/build/fetch_ahead.h"
#include "regen/search/build/movement.h"
#include "regen/search/build/sequence.h"
#include "regen/search/judge.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/oracles/naive_interpreter.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

using ::testing::ElementsAre;

constexpr Link kUnitLink{.to_host = 1, .to_device = 1, .both = 2};

bool claims(const Outcome& outcome) {
  return outcome.status == PlanStatus::kFeasible || outcome.status == PlanStatus::kOptimal;
}

std::vector<std::string> step_list(const Graph& graph, const Plan& plan) {
  std::vector<std::string> list;
  for (const Step& step : plan.steps) {
    const bool computes = step.kind() == StepKind::kCompute;
    list.push_back(std::string(to_string(step.kind())) + " " +
                   (computes ? graph.name(step.op()) : graph.name(step.tensor())));
  }
  return list;
}

// a -> b -> c -> d -> loss, and gradients gd, gc, gb, ga, where gd reads c, gc reads b, gb reads
// a. Every tensor has one byte and every op costs 1. Everything kept: 9 in time, and 5 bytes at the
// loss. gd and gc need 3 bytes by themselves.
class VdnnChain : public ::testing::Test {
 protected:
  VdnnChain() {
    GraphBuilder builder("chain");
    const auto add = [&](const char* name, Phase phase, std::vector<TensorId> inputs) {
      return builder.add_simple_op(name, "op", phase, std::move(inputs), 1, TensorKind::kActivation,
                                   1);
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

  Outcome plan(std::optional<Bytes> budget, Link link, std::optional<Bytes> host = {}) {
    return solve("vdnn", {.graph = &graph_, .link = link, .budget = budget, .host_budget = host})
        .value();
  }

  Graph graph_;
};

// a rests longest. It leaves when the fifth byte is wanted, and there is room for its return while
// gc runs: a copy each way, both hidden.
TEST_F(VdnnChain, TheLongestRestLeavesAndReturnsOneOpAhead) {
  const Outcome outcome = plan(4, kUnitLink);
  EXPECT_EQ(outcome.status, PlanStatus::kFeasible);
  EXPECT_THAT(
      step_list(graph_, *outcome.plan),
      ElementsAre("compute a", "offload a", "compute b", "compute c", "compute d", "release a",
                  "compute loss", "release d", "compute gd", "release c", "release loss", "fetch a",
                  "compute gc", "release b", "release gd", "compute gb", "release a", "release gc",
                  "compute ga", "release gb", "release ga"));
  EXPECT_EQ(outcome.simulation.peak_bytes, 4);
  EXPECT_EQ(outcome.simulation.host_peak_bytes, 1);
  EXPECT_EQ(outcome.simulation.cost, 9);
}

// At 3 bytes a leaves for d and b for the loss. gd, gc and gb each fill the device alone, so both
// fetches wait until right before their use: 2 units of stall. c would be wanted back at once: it
// stays.
TEST_F(VdnnChain, AFetchThatWouldBreakTheBudgetIsPostponedToItsUse) {
  const std::vector<std::string> expected{
      "compute a",    "offload a", "compute b",    "offload b",  "compute c",  "release a",
      "compute d",    "release b", "compute loss", "release d",  "compute gd", "release c",
      "release loss", "fetch b",   "compute gc",   "release b",  "release gd", "fetch a",
      "compute gb",   "release a", "release gc",   "compute ga", "release gb", "release ga"};
  const Outcome outcome = plan(3, kUnitLink);
  EXPECT_EQ(outcome.status, PlanStatus::kFeasible);
  EXPECT_EQ(step_list(graph_, *outcome.plan), expected);
  EXPECT_EQ(outcome.simulation.cost, 11);
  EXPECT_EQ(outcome.simulation.stall, 2);
  // Without a budget the least memory is wanted, which is the same.
  EXPECT_EQ(step_list(graph_, *plan(std::nullopt, kUnitLink).plan), expected);
}

TEST_F(VdnnChain, NothingLeavesWhenEverythingFits) {
  const Outcome outcome = plan(5, kUnitLink);
  EXPECT_EQ(outcome.simulation.offloaded_bytes, 0);
  EXPECT_EQ(outcome.simulation.recomputed, 0U);
  EXPECT_EQ(outcome.simulation.cost, 9);
}

// Two copies of a take 20, another run of it takes 1.
TEST_F(VdnnChain, OverASlowLinkAValueIsRecomputed) {
  const Outcome outcome = plan(4, {.to_host = 0.1, .to_device = 0.1, .both = 0.2});
  EXPECT_EQ(outcome.status, PlanStatus::kFeasible);
  EXPECT_EQ(outcome.simulation.offloaded_bytes, 0);
  EXPECT_EQ(outcome.simulation.recomputed, 1U);
  EXPECT_EQ(outcome.simulation.cost, 10);
}

TEST_F(VdnnChain, WithoutALinkItOnlyRecomputes) {
  const Outcome outcome = plan(4, {});
  EXPECT_EQ(outcome.status, PlanStatus::kFeasible);
  EXPECT_EQ(outcome.simulation.cost, 10);
}

// One host byte is enough for a, but 3 device bytes take two moves.
TEST_F(VdnnChain, TheHostBudgetHolds) {
  EXPECT_EQ(plan(4, kUnitLink, 1).simulation.offloaded_bytes, 1);
  EXPECT_EQ(plan(3, kUnitLink, 2).status, PlanStatus::kFeasible);
  for (const Bytes host : {0, 1}) {
    const Outcome outcome = plan(3, kUnitLink, host);
    ASSERT_TRUE(outcome.plan.has_value());
    EXPECT_LE(outcome.simulation.host_peak_bytes, host);
  }
}

TEST_F(VdnnChain, ABudgetBelowTheStructuralBoundIsInfeasible) {
  EXPECT_EQ(plan(2, kUnitLink).status, PlanStatus::kInfeasible);
}

// The least peak of these steps is that of limit 0; from there on the limit is kept.
TEST_F(VdnnChain, MovementKeepsEveryLimitFromItsLeastPeakOn) {
  const Plan base = plan_from_sequence(graph_, {graph_.ops().begin(), graph_.ops().end()});
  const IdVector<TensorId, char> all(graph_.num_tensors(), 1);
  EXPECT_EQ(move_tensors(graph_, base.steps, OpId(4), all, kUnitLink, 0).peak_bytes, 3);
  EXPECT_EQ(move_tensors(graph_, base.steps, OpId(4), all, kUnitLink, 0).moved, 3U);
  EXPECT_EQ(move_tensors(graph_, base.steps, OpId(4), all, kUnitLink, 3).peak_bytes, 3);
  EXPECT_EQ(move_tensors(graph_, base.steps, OpId(4), all, kUnitLink, 4).moved, 1U);
  EXPECT_EQ(move_tensors(graph_, base.steps, OpId(4), all, kUnitLink, 5).steps, base.steps);
}

// Five computes of cost 1. a's copy takes 2, so it is wanted before the third.
TEST_F(VdnnChain, AFetchIsAsFarAheadAsItsCopyTakes) {
  ComputeTimes computes{.start = {0, 1, 2, 3, 4}, .bytes = {5, 1, 1, 1, 1}};
  std::vector<Return> returns{{.tensor = TensorId(0), .earliest = 1, .used = 4}};
  fetch_ahead(graph_, /*bandwidth=*/0.5, /*limit=*/5, computes, returns);
  EXPECT_EQ(returns[0].fetched, 2U);
  EXPECT_THAT(computes.bytes, ElementsAre(5, 1, 2, 2, 1));
}

// The copy for compute 4 starts at 2, so that for compute 3 should end then and start at 0; but it
// may not be fetched before compute 1.
TEST_F(VdnnChain, CopiesThatFollowEachOtherStartEarlier) {
  ComputeTimes computes{.start = {0, 1, 2, 3, 4}, .bytes = {1, 1, 1, 1, 1}};
  std::vector<Return> returns{{.tensor = TensorId(0), .earliest = 1, .used = 3},
                              {.tensor = TensorId(1), .earliest = 1, .used = 4}};
  fetch_ahead(graph_, /*bandwidth=*/0.5, /*limit=*/5, computes, returns);
  EXPECT_EQ(returns[0].fetched, 1U);
  EXPECT_EQ(returns[1].fetched, 2U);
}

TEST_F(VdnnChain, AFetchStaysBehindAComputeThatLeavesItNoRoom) {
  ComputeTimes computes{.start = {0, 1, 2, 3, 4}, .bytes = {1, 1, 5, 1, 1}};
  std::vector<Return> returns{{.tensor = TensorId(0), .earliest = 1, .used = 4}};
  fetch_ahead(graph_, /*bandwidth=*/0.5, /*limit=*/5, computes, returns);
  EXPECT_EQ(returns[0].fetched, 3U);
}

Problem random_problem(const Graph& graph, Random& random) {
  Problem problem{.graph = &graph};
  if (random.chance(0.9)) {
    const auto down = static_cast<double>(random.between(1, 40));
    const auto up = static_cast<double>(random.between(1, 40));
    problem.link = {.to_host = down, .to_device = up, .both = std::max(down, up)};
  }
  if (random.chance(0.8)) {
    problem.budget = structural_bound(graph).bytes + random.between(-2, 60);
  }
  if (random.chance(0.3)) problem.host_budget = random.between(0, 60);
  return problem;
}

TEST(Vdnn, IsSoundAndKeepsBothBudgetsOnRandomGraphs) {
  int fits = 0;
  int moves = 0;
  int both = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 10});
    const Problem problem = random_problem(graph, random);
    const auto outcome = solve("vdnn", problem);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    if (!outcome->plan) continue;
    ValidationLimits limits{.host_budget = problem.host_budget};
    if (claims(*outcome)) limits.budget = problem.budget;
    const auto validation = validate(graph, *outcome->plan, limits);
    ASSERT_TRUE(validation.ok()) << validation.error().message;
    const auto naive = testing::interpret(graph, *outcome->plan, problem.link);
    ASSERT_EQ(outcome->simulation.peak_bytes, naive.peak_bytes);
    ASSERT_EQ(outcome->simulation.host_peak_bytes, naive.host_peak_bytes);
    ASSERT_DOUBLE_EQ(outcome->simulation.cost, naive.makespan);
    fits += claims(*outcome) ? 1 : 0;
    moves += outcome->simulation.offloaded_bytes > 0 ? 1 : 0;
    both += outcome->simulation.offloaded_bytes > 0 && outcome->simulation.recomputed > 0 ? 1 : 0;
  }
  // Enough of each for the above to say something.
  EXPECT_GT(fits, 900);
  EXPECT_GT(moves, 300);
  EXPECT_GT(both, 50);
}

// Never worse than keeping everything, in the sense of the problem.
TEST(Vdnn, FitsWheneverKeepingEverythingDoes) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Graph graph = testing::random_training_graph(random);
    const Problem problem{.graph = &graph, .link = kUnitLink, .budget = random.between(0, 200)};
    const auto keep = solve("keep_all", problem).value();
    if (!claims(keep)) continue;
    const auto outcome = solve("vdnn", problem).value();
    EXPECT_TRUE(claims(outcome));
    EXPECT_EQ(outcome.simulation.offloaded_bytes, 0);
    EXPECT_EQ(outcome.simulation.cost, keep.simulation.cost);
  }
}

struct Network {
  const char* name;
  BackwardStyle style;
};

class VdnnNetwork : public ::testing::TestWithParam<Network> {
 protected:
  VdnnNetwork()
      : graph_(zoo_graph(GetParam().name, {.batch = 16, .backward = GetParam().style}).value()),
        keep_(solve("keep_all", {.graph = &graph_}).value().simulation) {}

  // A part of the way from what some op needs by itself to what keeping everything needs.
  Bytes budget(double part) const {
    const Bytes least = structural_bound(graph_).bytes;
    return least + static_cast<Bytes>(part * static_cast<double>(keep_.peak_bytes - least));
  }
  Outcome plan(double part, double bytes_per_cost) {
    const Link link{bytes_per_cost, bytes_per_cost, 2 * bytes_per_cost};
    return solve("vdnn", {.graph = &graph_, .link = link, .budget = budget(part)}).value();
  }

  Graph graph_;
  Simulation keep_;
};

TEST_P(VdnnNetwork, MovesOverAFastLinkForNextToNothing) {
  const Outcome outcome = plan(0.6, 1000);
  EXPECT_EQ(outcome.status, PlanStatus::kFeasible) << outcome.note;
  EXPECT_GT(outcome.simulation.offloaded_bytes, 0);
  EXPECT_EQ(outcome.simulation.offloaded_bytes, outcome.simulation.fetched_bytes);
  EXPECT_LE(outcome.simulation.peak_bytes, budget(0.6));
  EXPECT_LT(outcome.simulation.overhead, 0.01);
}

TEST_P(VdnnNetwork, MovesNothingWhenTheBudgetIsAmple) {
  const Outcome outcome = plan(1, 1000);
  EXPECT_EQ(outcome.status, PlanStatus::kFeasible);
  EXPECT_EQ(outcome.simulation.offloaded_bytes, 0);
  EXPECT_EQ(outcome.simulation.cost, keep_.cost);
}

TEST_P(VdnnNetwork, RecomputesOverASlowLink) {
  const Outcome outcome = plan(0.75, 1e-6);
  EXPECT_EQ(outcome.status, PlanStatus::kFeasible) << outcome.note;
  EXPECT_EQ(outcome.simulation.offloaded_bytes, 0);
  EXPECT_GT(outcome.simulation.recomputed, 0U);
}

TEST_P(VdnnNetwork, KeepsEveryBudgetItClaims) {
  int feasible = 0;
  for (int part = 0; part <= 10; ++part) {
    const Outcome outcome = plan(0.1 * part, 0.01);
    ASSERT_TRUE(outcome.plan.has_value());
    if (!claims(outcome)) continue;
    ++feasible;
    EXPECT_LE(outcome.simulation.peak_bytes, budget(0.1 * part));
  }
  EXPECT_GE(feasible, 4);
}

INSTANTIATE_TEST_SUITE_P(Zoo, VdnnNetwork,
                         ::testing::Values(Network{"VGG19", BackwardStyle::kCheckmate},
                                           Network{"VGG19", BackwardStyle::kExact},
                                           Network{"ResNet50", BackwardStyle::kCheckmate},
                                           Network{"ResNet50", BackwardStyle::kExact}),
                         [](const auto& network) {
                           return std::string(network.param.name) +
                                  (network.param.style == BackwardStyle::kExact ? "Exact"
                                                                                : "Checkmate");
                         });

}  // namespace
}  // namespace regen::search
