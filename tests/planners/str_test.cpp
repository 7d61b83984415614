// The exact hybrid planner against exhaustive search over step lists, and its own promises.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>

#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/planners/planner.h"
#include "tests/support/frontier_oracle.h"
#include "tests/support/naive_interpreter.h"
#include "tests/support/step_oracle.h"

namespace regen {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostStates = 6'000'000;

bool exhaustive() {
  return std::getenv("REGEN_EXHAUSTIVE") != nullptr;
}

// Powers of two, so that durations are exact.
Link random_link(Random& random) {
  const auto rate = [&] {
    return std::vector<double>{
        0.25, 0.5, 1, 2, 4, 8}[static_cast<std::size_t>(random.between(0, 5))];
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
    problem = {.graph = &*graph, .link = random_link(random)};
    const Bytes least = structural_bound(*graph).bytes;
    const Bytes most = solve("keep_all", {.graph = &*graph}).value().simulation.peak_bytes;
    problem.budget = random.between(least, std::max(least, most - 1));
    if (random.chance(0.25)) problem.host_budget = random.between(0, 20);
    problem.options.recompute_gradients = random.chance(0.5);
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

TEST(Str, EqualsExhaustiveSearchOverStepLists) {
  const int graphs = exhaustive() ? 1000 : 150;
  const int most_layers = exhaustive() ? 7 : 3;
  int moved = 0;
  int recomputed = 0;
  std::size_t most = 0;
  for (int seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case tiny(static_cast<std::uint64_t>(seed), most_layers);
    const auto outcome = solve("str", tiny.problem);
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    const bool found = outcome->status == PlanStatus::kOptimal;
    ASSERT_TRUE(found || outcome->status == PlanStatus::kInfeasible)
        << to_string(outcome->status) << " " << outcome->note;
    const double cost = found ? outcome->simulation.cost : kInfinity;
    // All lists that are cheaper: there must be none.
    const auto oracle = testing::cheapest_step_list(*tiny.graph, tiny.limits(), cost, kMostStates);
    ASSERT_TRUE(oracle.complete);
    EXPECT_FALSE(oracle.cost.has_value()) << "a list costs " << *oracle.cost << ", not " << cost;
    most = std::max(most, oracle.states);
    if (!found) continue;
    expect_sound(tiny.problem, *outcome);
    EXPECT_EQ(outcome->lower_bound, cost);
    moved += outcome->simulation.offloaded_bytes > 0 ? 1 : 0;
    recomputed += outcome->simulation.recomputed > 0 ? 1 : 0;
    const auto relaxed = solve("str_lp", tiny.problem);
    ASSERT_TRUE(relaxed.ok()) << relaxed.error().message;
    EXPECT_LE(relaxed->lower_bound, cost * (1 + 1e-9));
    if (relaxed->plan) {
      EXPECT_GE(relaxed->simulation.cost, cost);
    }
    if (HasFatalFailure()) return;
  }
  RecordProperty("most_states", static_cast<int>(most));
  // Enough of each for the above to say something.
  EXPECT_GT(moved, graphs / 6);
  EXPECT_GT(recomputed, graphs / 8);
}

}  // namespace
}  // namespace regen
