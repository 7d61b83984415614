// The exact hybrid planner against exhaustive search over step lists, and its own promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/planners/covering_bound.h"
#include "regen/planners/planner.h"
#include "tests/support/frontier_oracle.h"
#include "tests/support/naive_interpreter.h"
#include "tests/support/step_oracle.h"

namespace regen {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostWork = 40'000'000;

bool exhaustive() {
  return std::getenv("REGEN_EXHAUSTIVE") != nullptr;
}

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

// A tiny network over one link, at a budget between the least and what keeping everything takes.
struct Case {
  explicit Case(std::uint64_t seed, int most_layers) : random(seed) {
    graph =
        testing::random_mirrored_graph(random, static_cast<int>(random.between(1, most_layers)));
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

// The planner that decides everything finds the same, or something no dearer in another order,
// where the lists have nothing to say; and its own bound is no higher than the cheapest list.
// Returns whether it chose another order.
bool expect_same_from_auto(const Problem& problem, const Outcome& exact) {
  const auto outcome = solve("auto", problem);
  EXPECT_TRUE(outcome.ok());
  const double optimum = exact.status == PlanStatus::kOptimal ? exact.simulation.cost : kInfinity;
  Effort effort;
  EXPECT_LE(covering_bound(*problem.graph, problem.link, *problem.budget, effort).cost,
            optimum * (1 + 1e-9));
  const bool claims =
      outcome->status == PlanStatus::kOptimal || outcome->status == PlanStatus::kFeasible;
  EXPECT_EQ(outcome->status == PlanStatus::kInfeasible && std::isfinite(optimum), false);
  if (claims && !first_runs_in_order(*problem.graph, *outcome->plan)) {
    EXPECT_LE(outcome->simulation.cost, optimum) << outcome->note;
    return true;
  }
  EXPECT_EQ(claims, std::isfinite(optimum)) << to_string(outcome->status) << " " << outcome->note;
  if (!claims) return false;
  EXPECT_EQ(outcome->status, PlanStatus::kOptimal) << outcome->note;
  EXPECT_DOUBLE_EQ(outcome->simulation.cost, optimum) << outcome->note;
  return false;
}

// In slices, which can run side by side.
constexpr std::uint64_t kSlices = 10;
class Str : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Str, EqualsExhaustiveSearchOverStepLists) {
  const int graphs = static_cast<int>((exhaustive() ? 1000 : 150) / kSlices);
  const int most_layers = exhaustive() ? 7 : 3;
  int compared = 0;
  int too_large = 0;
  int moved = 0;
  int recomputed = 0;
  int reordered = 0;
  for (std::uint64_t seed = GetParam(); compared < graphs; seed += kSlices) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case tiny(seed, most_layers);
    const auto outcome = solve("str", tiny.problem);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    const bool found = outcome->status == PlanStatus::kOptimal;
    ASSERT_TRUE(found || outcome->status == PlanStatus::kInfeasible)
        << to_string(outcome->status) << " " << outcome->note;
    if (found) expect_sound(tiny.problem, *outcome);
    reordered += expect_same_from_auto(tiny.problem, *outcome) ? 1 : 0;
    (compare_with_all_lists(tiny, *outcome) ? compared : too_large) += 1;
    moved += outcome->simulation.offloaded_bytes > 0 ? 1 : 0;
    recomputed += outcome->simulation.recomputed > 0 ? 1 : 0;
    if (exhaustive() && compared % 10 == 0) {
      std::printf("%d compared, %d too large to compare; auto took another order in %d\n", compared,
                  too_large, reordered);
      std::fflush(stdout);
    }
  }
  RecordProperty("too_large", too_large);
  // Enough of each for the above to say something.
  EXPECT_LE(too_large, graphs / 3);
  EXPECT_GT(moved, 0);
  EXPECT_GT(recomputed, 0);
  EXPECT_LT(reordered, graphs / 4);
}

INSTANTIATE_TEST_SUITE_P(Slices, Str, ::testing::Range<std::uint64_t>(0, kSlices));

}  // namespace
}  // namespace regen
