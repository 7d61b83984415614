// The exact recompute+swap planner against exhaustive search over step lists, and its own promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "regen/graph/builder.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/search/bounds/covering_bound.h"
#include "regen/search/judge.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/oracles/naive_interpreter.h"
#include "tests/support/oracles/stage_oracle.h"
#include "tests/support/oracles/step_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostWork = 40'000'000;

// Powers of two, so that durations are exact. Fast links give many more lists of about the same
// cost, too many for the larger graphs.
Link random_link(Random& random, std::size_t num_ops) {
  const std::vector<double> rates{0.25, 0.5, 1, 2, 4, 8};
  const auto rate = [&] {
    return rates[static_cast<std::size_t>(random.between(0, num_ops > 9 ? 2 : 5))];
  };
  const double out = rate();
  const double in = rate();
  return {.to_host = out, .to_device = in, .both = out + in};
}

Graph random_network(Random& random, int most_layers) {
  return testing::random_mirrored_graph(random, static_cast<int>(random.between(1, most_layers)));
}

// Ops that make up to three values, some of which are results, and read parameters that others
// change.
Graph random_ops_of_several_values(Random& random, int most_ops) {
  GraphBuilder builder("several", CostUnit::kFlop);
  std::vector<TensorId> values, params;
  for (const char* name : {"p", "q"}) {
    params.push_back(builder.add_tensor({name, random.between(0, 3), TensorKind::kParam}));
  }
  const auto ops = random.between(2, most_ops);
  for (std::int64_t i = 0; i < ops; ++i) {
    OpSpec op{.name = "op" + std::to_string(i), .type = "op"};
    for (auto reads = random.between(0, 2); reads > 0 && !values.empty(); --reads) {
      const auto last = static_cast<std::int64_t>(values.size()) - 1;
      const TensorId read = values[static_cast<std::size_t>(
          random.between(random.chance(0.5) ? std::max<std::int64_t>(0, last - 1) : 0, last))];
      if (std::ranges::find(op.inputs, read) == op.inputs.end()) op.inputs.push_back(read);
    }
    for (auto makes = random.between(1, 3); makes > 0; --makes) {
      const auto kind = random.chance(0.25) ? TensorKind::kOutput : TensorKind::kActivation;
      op.outputs.push_back(builder.add_tensor(
          {"t" + std::to_string(values.size() + op.outputs.size()), random.between(0, 9), kind}));
    }
    values.insert(values.end(), op.outputs.begin(), op.outputs.end());
    for (TensorId param : params) {
      if (random.chance(0.3)) op.inputs.push_back(param);
      if (random.chance(0.1)) op.mutates.push_back(param);
    }
    op.recomputable = !random.chance(0.1);
    op.variants = {{.name = "v", .cost = static_cast<double>(random.between(0, 5))}};
    if (random.chance(0.3)) op.variants[0].workspace = random.between(1, 9);
    builder.add_op(std::move(op));
  }
  return std::move(builder).build().value();
}

// A tiny graph over one link, at a budget between the least and what keeping everything takes.
struct Case {
  Case(std::uint64_t seed, Graph (*make)(Random&, int), int size)
      : random(testing::first_seed() + seed) {
    graph = make(random, size);
    problem = {.graph = &*graph, .link = random_link(random, graph->num_ops())};
    const Bytes least = structural_bound(*graph).bytes;
    const Bytes most = solve("keep_all", {.graph = &*graph}).value().simulation.peak_bytes;
    problem.budget = random.between(least, std::max(least, most - 1));
    if (random.chance(0.25)) problem.host_budget = random.between(0, 20);
    problem.options.recompute_gradients = random.chance(0.5) && graph->num_ops() <= 11;
  }

  testing::StepLimits limits() const {
    return {.budget = *problem.budget - graph->fixed_bytes(),
            .host_budget = problem.host_budget,
            .link = problem.link,
            .gradients_again = problem.options.recompute_gradients,
            .only_late = graph->num_ops() > 11};
  }

  Random random;
  std::optional<Graph> graph;
  Problem problem;
};

void expect_sound(const Problem& problem, const Outcome& outcome) {
  const ValidationLimits limits{.budget = problem.budget, .host_budget = problem.host_budget};
  const auto validation = validate(*problem.graph, *outcome.plan, limits);
  ASSERT_TRUE(validation.ok()) << validation.error().message;
  EXPECT_EQ(outcome.simulation.cost,
            testing::interpret(*problem.graph, *outcome.plan, problem.link).makespan);
}

// What `str` says must be what all lists say, and what `str_lp` proves must be below it. False if
// there are too many lists to look at.
bool compare_with_all_lists(const Case& tiny, const Outcome& outcome) {
  const double cost = outcome.status == PlanStatus::kOptimal ? outcome.simulation.cost : kInfinity;
  // All lists that are cheaper: there must be none.
  const auto oracle = testing::cheapest_step_list(*tiny.graph, tiny.limits(), cost, kMostWork);
  if (!oracle.complete) return false;
  EXPECT_FALSE(oracle.cost.has_value()) << "a list costs " << *oracle.cost << ", not " << cost;
  EXPECT_EQ(outcome.lower_bound, outcome.plan ? cost : outcome.lower_bound);
  const auto relaxed = solve("str_lp", tiny.problem);
  EXPECT_TRUE(relaxed.ok());
  EXPECT_LE(relaxed->lower_bound, cost * (1 + 1e-9));
  EXPECT_GE(relaxed->plan ? relaxed->simulation.cost : kInfinity, cost);
  return true;
}

// Whether ops run for the first time in the order of the graph, as in all lists that are searched.
bool first_runs_in_order(const Graph& graph, const Plan& plan) {
  std::vector<OpId> first_runs;
  IdVector<OpId, char> ran(graph.num_ops(), 0);
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute || std::exchange(ran[step.op()], 1)) continue;
    first_runs.push_back(step.op());
  }
  return std::ranges::is_sorted(first_runs);
}

// The planner that decides everything finds the same, and its own bound is no higher than the
// cheapest list.
void expect_same_from_auto(const Problem& problem, const Outcome& exact) {
  Problem in_order = problem;
  in_order.options.keep_order = true;
  const auto outcome = solve("auto", in_order);
  EXPECT_TRUE(outcome.ok());
  const double optimum = exact.status == PlanStatus::kOptimal ? exact.simulation.cost : kInfinity;
  Effort effort;
  EXPECT_LE(covering_bound(*problem.graph, problem.link, *problem.budget, effort).cost,
            optimum * (1 + 1e-9));
  const bool claims =
      outcome->status == PlanStatus::kOptimal || outcome->status == PlanStatus::kFeasible;
  EXPECT_EQ(outcome->status == PlanStatus::kInfeasible && std::isfinite(optimum), false);
  const bool reordered = claims && !first_runs_in_order(*problem.graph, *outcome->plan);
  EXPECT_FALSE(reordered) << outcome->note;
  EXPECT_EQ(claims, std::isfinite(optimum)) << to_string(outcome->status) << " " << outcome->note;
  if (!claims) return;
  EXPECT_EQ(outcome->status, PlanStatus::kOptimal) << outcome->note;
  EXPECT_DOUBLE_EQ(outcome->simulation.cost, optimum) << outcome->note;
}

// In slices, which can run side by side.
constexpr std::uint64_t kSlices = 10;
class Str : public ::testing::TestWithParam<std::uint64_t> {};

// What was compared.
struct Tally {
  int compared = 0;
  int too_large = 0;
  int moved = 0;
  int recomputed = 0;
};

void compare(const Case& tiny, Tally& tally) {
  const auto outcome = solve("str", tiny.problem);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  const bool found = outcome->status == PlanStatus::kOptimal;
  ASSERT_TRUE(found || outcome->status == PlanStatus::kInfeasible)
      << to_string(outcome->status) << " " << outcome->note;
  if (found) expect_sound(tiny.problem, *outcome);
  expect_same_from_auto(tiny.problem, *outcome);
  (compare_with_all_lists(tiny, *outcome) ? tally.compared : tally.too_large) += 1;
  tally.moved += outcome->simulation.offloaded_bytes > 0 ? 1 : 0;
  tally.recomputed += outcome->simulation.recomputed > 0 ? 1 : 0;
}

// As many as that of one slice, with enough of each for the comparison to say something.
void compare_slice(std::uint64_t slice, int graphs, Graph (*make)(Random&, int), int size) {
  Tally tally;
  for (std::uint64_t seed = slice; tally.compared < graphs; seed += kSlices) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_NO_FATAL_FAILURE(compare(Case(seed, make, size), tally));
    if (testing::exhaustive() && tally.compared % 10 == 0) {
      std::printf("%d compared, %d too large to compare\n", tally.compared, tally.too_large);
      std::fflush(stdout);
    }
  }
  ::testing::Test::RecordProperty("too_large", tally.too_large);
  EXPECT_LE(tally.too_large, graphs / 3);
  EXPECT_GT(tally.moved, 0);
  EXPECT_GT(tally.recomputed, 0);
}

TEST_P(Str, EqualsExhaustiveSearchOverStepLists) {
  const int graphs = static_cast<int>((testing::exhaustive() ? 1000 : 150) / kSlices);
  compare_slice(GetParam(), graphs, random_network, testing::exhaustive() ? 7 : 3);
}

// What one run makes for two readers, and results that are given up and made again at the end.
TEST_P(Str, EqualsExhaustiveSearchWhereOpsMakeSeveralValues) {
  const int graphs = static_cast<int>((testing::exhaustive() ? 1000 : 200) / kSlices);
  compare_slice(GetParam(), graphs, random_ops_of_several_values, testing::exhaustive() ? 6 : 5);
}

// Found by a random graph: the loss does not fit beside the gradients, and is made again last.
TEST(StrOutputs, AreMadeAgainAfterTheLastOp) {
  GraphBuilder builder("loss again", CostUnit::kFlop);
  const TensorId x = builder.add_tensor({"x", 28});
  const TensorId gradient = builder.add_tensor({"gradient", 44, TensorKind::kGradient});
  const TensorId loss = builder.add_tensor({"loss", 48, TensorKind::kOutput});
  const TensorId update = builder.add_tensor({"update", 60, TensorKind::kGradient});
  const auto add = [&](const char* name, std::vector<TensorId> reads, std::vector<TensorId> makes,
                       double cost) {
    OpSpec op{.name = name, .type = "op", .inputs = std::move(reads), .outputs = std::move(makes)};
    op.variants = {{.name = "v", .cost = cost}};
    builder.add_op(std::move(op));
  };
  add("forward", {}, {x}, 1);
  add("loss", {x}, {gradient, loss}, 0);
  add("backward", {gradient}, {update}, 1);
  add("apply", {update}, {}, 4);
  const Graph graph = std::move(builder).build().value();
  const auto outcome = solve("str", {.graph = &graph, .link = {0.25, 0.25, 0.5}, .budget = 135});
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->status, PlanStatus::kOptimal);
  EXPECT_EQ(outcome->simulation.cost, 6);  // every op once, and the loss again for nothing
}

// Found by a random graph: `turn` is fetched early and `second` runs again for nothing but to wait for
// it, so that its host copy goes and leaves room for that of `first`.
TEST(StrHost, ARunMayOnlyWaitForItsInputsToFreeTheHost) {
  GraphBuilder builder("wait", CostUnit::kSecond);
  const auto tensor = [&](const char* name, Bytes bytes,
                          TensorKind kind = TensorKind::kActivation) {
    return builder.add_tensor({name, bytes, kind});
  };
  const TensorId first = tensor("first", 3), turn = tensor("turn", 9), second = tensor("second", 6);
  const TensorId third = tensor("third", 9), loss = tensor("loss", 8);
  const TensorId d3 = tensor("d3", 1), d2 = tensor("d2", 7), d1 = tensor("d1", 7);
  const TensorId result = tensor("result", 3, TensorKind::kOutput);
  const auto add = [&](const char* name, std::vector<TensorId> reads, TensorId makes, double cost,
                       Phase phase, Bytes workspace = 0) {
    OpSpec op{.name = name, .type = "op", .phase = phase, .inputs = std::move(reads)};
    op.outputs = {makes};
    op.variants = {{.name = "v", .cost = cost, .workspace = workspace}};
    builder.add_op(std::move(op));
  };
  add("first", {}, first, 5, Phase::kForward);
  add("turn", {first}, turn, 5, Phase::kForward);
  add("second", {turn}, second, 1, Phase::kForward, 2);
  add("third", {second}, third, 6, Phase::kForward);
  add("loss", {third}, loss, 1, Phase::kLoss);
  add("d3", {third, loss}, d3, 5, Phase::kBackward);
  add("d2", {second, third, d3}, d2, 1, Phase::kBackward);
  add("d1", {turn, second, d2}, d1, 5, Phase::kBackward);
  add("result", {first, turn, d1}, result, 2, Phase::kBackward);
  const Graph graph = std::move(builder).build().value();
  Problem problem{.graph = &graph, .link = {2, 4, 6}, .budget = 30, .host_budget = 9};
  problem.options.recompute_gradients = false;
  const testing::StepLimits limits{
      .budget = 30, .host_budget = 9, .link = problem.link, .gradients_again = false};
  const auto oracle = testing::cheapest_step_list(graph, limits, kInfinity, kMostWork);
  ASSERT_TRUE(oracle.complete && oracle.cost);
  const auto outcome = solve("str", problem);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->status, PlanStatus::kOptimal);
  EXPECT_EQ(outcome->simulation.cost, *oracle.cost);
  EXPECT_GT(outcome->simulation.recomputed, 0);
  expect_sound(problem, *outcome);
}

INSTANTIATE_TEST_SUITE_P(Slices, Str, ::testing::Range<std::uint64_t>(0, kSlices));

}  // namespace
}  // namespace regen::search
