// The fastest variants for the steps of a plan, against all choices there are.
#include "regen/search/portfolio/variant_refinement.h"

#include <gtest/gtest.h>

#include <limits>

#include "regen/base/random.h"
#include "regen/graph/builder.h"

namespace regen::search {
namespace {

constexpr int kOps = 4;
constexpr std::size_t kVariants = 3;

// A chain whose ops have three ways each, of random cost, cost of a second run, and workspace.
Graph random_chain(Random& random) {
  GraphBuilder builder("chain");
  std::vector<TensorId> values;
  for (int i = 0; i < kOps; ++i) {
    const TensorId t =
        builder.add_tensor({.name = "t" + std::to_string(i), .bytes = random.between(1, 9)});
    OpSpec op{.name = "op" + std::to_string(i), .type = "op", .outputs = {t}};
    if (i > 0) op.inputs = {values.back()};
    for (std::size_t v = 0; v < kVariants; ++v) {
      op.variants.push_back({.name = "v" + std::to_string(v),
                             .cost = static_cast<double>(random.between(1, 20)),
                             .rerun_cost = static_cast<double>(random.between(1, 20)),
                             .workspace = random.between(0, 20)});
    }
    builder.add_op(std::move(op));
    values.push_back(t);
  }
  return std::move(builder).build().value();
}

// Every op, the first one twice.
Plan plan_with(const std::vector<std::size_t>& choices) {
  std::vector<Step> steps;
  for (int i = 0; i < kOps; ++i) {
    steps.push_back(Step::compute(OpId(i), choices[static_cast<std::size_t>(i)]));
    if (i == 1) steps.push_back(Step::release(TensorId(0)));
  }
  steps.push_back(Step::compute(OpId(0), choices.back()));
  return {.steps = std::move(steps)};
}

double cheapest_of_all(const Graph& graph, Bytes budget) {
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> choices(kOps + 1, 0);
  for (std::size_t code = 0; code < 243; ++code) {  // 3 ways for each of 5 runs
    for (std::size_t i = 0, rest = code; i < choices.size(); ++i, rest /= kVariants) {
      choices[i] = rest % kVariants;
    }
    const Simulation simulation = simulate(graph, plan_with(choices)).value();
    if (simulation.peak_bytes <= budget) best = std::min(best, simulation.cost);
  }
  return best;
}

TEST(VariantRefinement, IsTheBestOfAllChoicesForTheSteps) {
  int tight = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Graph graph = random_chain(random);
    const Plan start = plan_with({0, 0, 0, 0, 0});
    const Bytes budget = simulate(graph, start)->peak_bytes + random.between(0, 6);
    const Plan refined = with_fastest_variants(graph, start, {}, budget).value();
    const Simulation simulation = simulate(graph, refined).value();
    EXPECT_LE(simulation.peak_bytes, budget) << "seed " << seed;
    EXPECT_EQ(simulation.cost, cheapest_of_all(graph, budget)) << "seed " << seed;
    tight += simulation.cost > cheapest_of_all(graph, 1000);
  }
  EXPECT_GT(tight, 20);
}

}  // namespace
}  // namespace regen::search
