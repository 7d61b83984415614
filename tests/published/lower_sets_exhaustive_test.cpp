// Small graphs: the planners over lower sets against all chains of lower sets, each written out.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "regen/base/random.h"
#include "regen/published/lower_sets/canonical_strategy.h"
#include "regen/published/lower_sets/format/format_lower_sets.h"
#include "regen/published/lower_sets/format/schedule_run.h"
#include "regen/published/lower_sets/lower_set_published.h"
#include "regen/published/lower_sets/lower_set_search.h"
#include "regen/published/options.h"
#include "regen/search/build/sequence.h"
#include "regen/search/judge.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::published {
namespace {

// A random network in the text of the solvers: each op reads one to three earlier values, and its
// backward twin some of the values next to it.
LowerSetFile random_file(Random& random) {
  const auto layers = static_cast<std::uint32_t>(random.between(4, 9));
  LowerSetFile file;
  file.variables.push_back({.bytes = random.between(1, 30), .name = "0"});
  std::vector<LowerSetBlock> twins;
  std::set<std::uint32_t> unread;
  for (std::uint32_t i = 1; i <= layers; ++i) {
    file.variables.push_back({.bytes = random.between(1, 30), .name = "_"});
    LowerSetBlock forward{.outputs = {i}, .type = random.chance(0.3) ? "Conv" : "ReLU"};
    forward.attributes = "{\"rank\": " + std::to_string(i) + "}";
    std::set<std::uint32_t> reads;
    if (random.chance(0.85)) reads.insert(i - 1);
    const auto more = random.between(reads.empty() ? 1 : 0, 2);
    for (std::int64_t k = 0; k < more; ++k) {
      reads.insert(static_cast<std::uint32_t>(random.between(0, i - 1)));
    }
    for (std::uint32_t read : reads) unread.erase(read);
    if (i == layers) reads.merge(unread);  // so that there is one loss
    unread.insert(i);
    LowerSetBlock backward{.backward = true, .type = forward.type};
    backward.attributes = forward.attributes;
    backward.inputs.push_back({i, LowerSetRole::kGradient});
    for (std::uint32_t read : reads) {
      forward.inputs.push_back({read, LowerSetRole::kValue});
      if (random.chance(0.5)) backward.inputs.push_back({read, LowerSetRole::kInput});
      backward.outputs.push_back(read);
    }
    if (random.chance(0.4)) backward.inputs.push_back({i, LowerSetRole::kOutput});
    file.blocks.push_back(std::move(forward));
    twins.push_back(std::move(backward));
  }
  file.blocks.insert(file.blocks.end(), twins.begin(), twins.end());
  return file;
}

using Set = std::uint32_t;  // one bit for each node

std::vector<Set> lower_sets(const LowerSetNodes& nodes) {
  std::vector<Set> found;
  for (Set set = 0; set < Set{1} << nodes.size(); ++set) {
    bool lower = true;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      if ((set >> node & 1) == 0) continue;
      for (std::uint32_t before : nodes.predecessors[node]) lower &= (set >> before & 1) != 0;
    }
    if (lower) found.push_back(set);
  }
  return found;
}

// Calls visit for every chain from the empty set (left out) to all nodes.
template <class Visit>
void for_each_chain(const std::vector<Set>& sets, std::vector<Set>& chain, Visit visit) {
  const Set last = chain.empty() ? 0 : chain.back();
  if (last == sets.back()) {
    visit(chain);
    return;
  }
  for (Set next : sets) {
    if (next == last || (next & last) != last) continue;
    chain.push_back(next);
    for_each_chain(sets, chain, visit);
    chain.pop_back();
  }
}

struct Point {
  Bytes peak;
  double overhead;
  auto operator<=>(const Point&) const = default;
};

// The least overhead at every budget that is the peak of some chain.
std::map<Bytes, double> staircase(std::vector<Point> points) {
  std::sort(points.begin(), points.end());
  std::map<Bytes, double> stairs;
  double least = points.front().overhead;
  for (const Point& point : points) {
    least = std::min(least, point.overhead);
    stairs[point.peak] = least;
  }
  return stairs;
}

Bytes bytes_of(const LowerSetNodes& nodes, Set set) {
  Bytes sum = 0;
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (set >> node & 1) sum += nodes.bytes[node];
  }
  return sum;
}

Set boundary(const LowerSetNodes& nodes, Set set) {
  Set found = 0;
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    for (std::uint32_t after : nodes.successors[node]) {
      if ((set >> node & 1) && !(set >> after & 1)) found |= Set{1} << node;
    }
  }
  return found;
}

// T and M of the paper, set by set.
Point published_point(const LowerSetNodes& nodes, const std::vector<Set>& chain) {
  Point point{0, 0};
  Set cached = 0;
  Set before = 0;
  for (Set set : chain) {
    Set readers = 0;
    Set read = 0;
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      if (!(set >> node & 1)) continue;
      for (std::uint32_t after : nodes.successors[node]) {
        if (!(set >> after & 1)) readers |= Set{1} << after;
      }
    }
    for (std::uint32_t node = 0; node < nodes.size(); ++node) {
      if (!(readers >> node & 1)) continue;
      for (std::uint32_t p : nodes.predecessors[node]) read |= Set{1} << p;
    }
    point.peak = std::max(point.peak, bytes_of(nodes, cached) + 2 * bytes_of(nodes, set & ~before) +
                                          bytes_of(nodes, readers) + bytes_of(nodes, read & ~set));
    cached |= boundary(nodes, set);
    before = set;
  }
  for (std::uint32_t node = 0; node < nodes.size(); ++node) {
    if (!(cached >> node & 1)) point.overhead += nodes.costs[node];
  }
  return point;
}

constexpr int kGraphs = 2000;

Graph random_graph(int seed) {
  Random random(static_cast<std::uint64_t>(seed) + 1);
  return graph_from_lower_sets(random_file(random), "random").value();
}

TEST(LowerSetsExhaustive, PublishedModelEqualsAllChainsAtEveryBudget) {
  std::size_t budgets = 0;
  for (int seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed);
    const LowerSetNodes nodes = lower_set_nodes(graph, /*with_loss=*/true);
    ASSERT_LE(nodes.size(), 9u);
    const std::vector<Set> sets = lower_sets(nodes);
    std::vector<Point> points;
    std::vector<Set> chain;
    for_each_chain(sets, chain,
                   [&](const auto& c) { points.push_back(published_point(nodes, c)); });
    const auto stairs = staircase(points);
    Effort effort;
    const auto family = LowerSetFamily::all(nodes, 1000, 1 << 20, effort);
    ASSERT_EQ(family->size(), sets.size());
    ASSERT_EQ(smallest_published_budget(nodes, *family, effort), stairs.begin()->first);
    for (const auto& [budget, overhead] : stairs) {
      const auto answer = solve_published(nodes, *family, budget, Preference::kTime, effort);
      ASSERT_TRUE(answer.proven && answer.strategy);
      EXPECT_EQ(answer.strategy->overhead, overhead);
      EXPECT_LE(answer.strategy->peak, budget);
      ++budgets;
    }
  }
  EXPECT_GT(budgets, 5'000u);
}

// The sequence of a chain, judged by the simulator.
Point judged_point(const LowerSetBlocks& blocks, const std::vector<Set>& chain) {
  std::vector<std::uint64_t> words(chain.begin(), chain.end());
  std::vector<std::span<const std::uint64_t>> sets;
  sets.reserve(words.size());
  for (const std::uint64_t& word : words) sets.emplace_back(&word, 1);
  Effort effort;
  const Plan plan = search::plan_from_sequence(blocks.graph(),
                                               blocks.sequence(sets, /*rerun_last=*/false, effort));
  const Simulation simulation = simulate(blocks.graph(), plan).value();
  return {simulation.peak_bytes, simulation.cost - blocks.graph().base_cost()};
}

TEST(LowerSetsExhaustive, DefaultModelEqualsAllChainsAtEveryBudget) {
  std::size_t budgets = 0;
  for (int seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed);
    const LowerSetNodes nodes = lower_set_nodes(graph, /*with_loss=*/false);
    const LowerSetBlocks blocks(graph, nodes);
    std::vector<Point> points;
    std::vector<Set> chain;
    for_each_chain(lower_sets(nodes), chain,
                   [&](const auto& c) { points.push_back(judged_point(blocks, c)); });
    const auto stairs = staircase(points);
    EXPECT_EQ(stairs.rbegin()->second, 0);
    for (const auto& [budget, overhead] : stairs) {
      const auto outcome = search::solve("lower_sets", {.graph = &graph, .budget = budget}).value();
      ASSERT_EQ(outcome.status, search::PlanStatus::kOptimal) << outcome.note;
      EXPECT_EQ(outcome.simulation.cost - graph.base_cost(), overhead);
      ++budgets;
    }
    const Bytes least = stairs.begin()->first;
    const auto below = search::solve("lower_sets", {.graph = &graph, .budget = least - 1}).value();
    EXPECT_EQ(below.status, search::PlanStatus::kInfeasible) << below.note;
    const auto lean =
        search::solve("lower_sets", {.graph = &graph,
                                     .options = {.extra = Options{.prefer = Preference::kMemory}}})
            .value();
    EXPECT_EQ(lean.simulation.peak_bytes, least);
    EXPECT_EQ(lean.simulation.cost - graph.base_cost(), stairs.begin()->second);
    if (HasFailure()) return;
  }
  EXPECT_GT(budgets, 5'000u);
}

// Every chain of every graph: the canonical schedule is a correct one (run_schedule() checks each
// order), costs what is counted without writing it, and so does the plan made of it.
TEST(LowerSetsExhaustive, CanonicalSchedulesAreCorrectAndCostWhatIsCounted) {
  std::size_t chains = 0;
  for (int seed = 0; seed < kGraphs / 4; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed);
    const LowerSetNodes nodes = lower_set_nodes(graph, /*with_loss=*/true);
    const auto strategy = CanonicalStrategy::of(graph, nodes).value();
    std::vector<Set> chain;
    for_each_chain(lower_sets(nodes), chain, [&](const std::vector<Set>& found) {
      if (++chains % 7 != 0) return;
      const std::vector<std::uint64_t> words(found.begin(), found.end());
      std::vector<std::span<const std::uint64_t>> sets;
      sets.reserve(words.size());
      for (const std::uint64_t& word : words) sets.emplace_back(&word, 1);
      const Schedule schedule = strategy.schedule(sets);
      const auto run = run_schedule(strategy.file(), schedule, "canonical");
      ASSERT_TRUE(run.ok()) << run.error().message;
      EXPECT_EQ(run->overhead_cost, strategy.overhead(sets));
      const auto simulation =
          simulate(graph, search::plan_from_sequence(graph, strategy.sequence(schedule)));
      ASSERT_TRUE(simulation.ok()) << simulation.error().message;
      EXPECT_EQ(simulation->cost - graph.base_cost(), run->overhead_cost);
    });
    if (HasFailure()) return;
  }
  EXPECT_GT(chains, 10'000u);
}

}  // namespace
}  // namespace regen::published
