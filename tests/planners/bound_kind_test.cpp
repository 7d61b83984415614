// Every planner's bound is about the plans that it says it is about: none of them, found by
// exhaustive search over step lists, costs less.
#include <gtest/gtest.h>

#include <limits>

#include "regen/plan/explain.h"
#include "regen/planners/registry.h"
#include "tests/support/frontier_oracle.h"
#include "tests/support/step_oracle.h"

namespace regen {
namespace {

constexpr std::size_t kMostWork = 2'000'000;

// The cheapest list whose first runs follow the order of the graph; infinite if there is none,
// absent if there are too many to look at.
std::optional<double> cheapest(const Graph& graph, Bytes budget, const Link& link) {
  const auto found =
      testing::cheapest_step_list(graph, {.budget = budget - graph.fixed_bytes(), .link = link},
                                  std::numeric_limits<double>::infinity(), kMostWork);
  if (!found.complete) return std::nullopt;
  return found.cost.value_or(std::numeric_limits<double>::infinity());
}

class BoundKindOf : public ::testing::TestWithParam<std::string> {};

TEST_P(BoundKindOf, IsTrueOnSmallGraphs) {
  const Link link{.to_host = 2, .to_device = 1, .both = 3};
  int compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_mirrored_graph(random, 2 + static_cast<int>(seed % 3));
    const Bytes least = structural_bound(graph).bytes;
    const Bytes most = solve("keep_all", {.graph = &graph})->simulation.peak_bytes;
    const Bytes budget = random.between(least, std::max(least, most - 1));
    const auto moving = cheapest(graph, budget, link);
    const auto staying = cheapest(graph, budget, {});
    const auto outcome = solve(GetParam(), {.graph = &graph, .link = link, .budget = budget});
    if (!outcome.ok() || !moving || !staying) continue;
    ++compared;
    const bool only_staying = outcome->bound_kind == BoundKind::kOrderWithoutMovement;
    EXPECT_LE(outcome->lower_bound, (only_staying ? *staying : *moving) * (1 + 1e-9))
        << "seed " << seed << " " << to_string(outcome->bound_kind);
  }
  EXPECT_GT(compared, 30);
}

std::vector<std::string> names() {
  std::vector<std::string> list;
  for (const PlannerEntry& entry : planner_registry()) list.emplace_back(entry.name);
  return list;
}

INSTANTIATE_TEST_SUITE_P(Registry, BoundKindOf, ::testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace regen
