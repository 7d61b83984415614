// The planners over lower sets against what the published code was measured to do
// (../shared/reference/data/lower_sets_reference.csv). Skipped where that folder is absent.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "regen/published/graph_formats.h"
#include "regen/published/lower_sets/canonical_strategy.h"
#include "regen/published/lower_sets/format/schedule_run.h"
#include "regen/published/lower_sets/lower_set_blocks.h"
#include "regen/published/lower_sets/lower_set_polish.h"
#include "regen/published/lower_sets/lower_set_published.h"
#include "regen/published/lower_sets/lower_set_search.h"
#include "regen/published/options.h"
#include "regen/search/build/sequence.h"
#include "regen/search/judge.h"
#include "tests/graph/format_test_data.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::published {
namespace {

struct Row {
  std::string graph;
  std::string algorithm;
  std::string mode;
  Bytes budget = 0;
  Bytes peak = 0;
  double overhead = 0;
};

std::vector<Row> feasible_rows() {
  std::istringstream lines(read_reference("lower_sets_reference.csv"));
  std::vector<Row> rows;
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line)) {
    std::vector<std::string> cells;
    std::istringstream fields(line);
    for (std::string cell; std::getline(fields, cell, ',');) cells.push_back(cell);
    if (cells[5] != "1") continue;
    Row row{.graph = cells[0], .algorithm = cells[2], .mode = cells[3]};
    if (!cells[4].empty()) row.budget = std::stoll(cells[4]);
    row.peak = std::stoll(cells[6]);
    row.overhead = std::stod(cells[7]);
    rows.push_back(row);
  }
  return rows;
}

const Graph& published_graph(const std::string& name) {
  static std::map<std::string, Graph> graphs;
  auto found = graphs.find(name);
  if (found == graphs.end()) {
    const std::string file = "computational_graphs/cg_" + name + ".txt";
    found = graphs.emplace(name, read_graph(read_reference(file), file).value()).first;
  }
  return found->second;
}

// Gradients of parameters and inputs stay to the end and are outside the published budget.
struct Executed {
  Bytes peak = 0;              // as the CSV counts
  Bytes activations_only = 0;  // as the budget counts
  double overhead = 0;
};

Executed executed(const Graph& graph, const Plan& plan) {
  const Simulation simulation = simulate(graph, plan).value();
  Executed result{.peak = simulation.activation_peak_bytes,
                  .overhead = simulation.cost - graph.base_cost()};
  std::vector<char> present(graph.num_tensors(), 0);
  Bytes live = 0;
  const auto add = [&](TensorId t, int sign) {
    if (graph.kind(t) != TensorKind::kOutput) live += sign * graph.bytes(t);
    present[t.index()] = sign > 0;
  };
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kRelease) {
      add(step.tensor(), -1);
      continue;
    }
    const VariantId variant = step.variant(graph);
    const TensorId old = graph.overwrites(variant);
    if (old.valid()) add(old, -1);
    for (TensorId t : graph.makes(variant)) {
      if (!present[t.index()]) add(t, 1);
    }
    result.activations_only = std::max(result.activations_only, live);
  }
  return result;
}

class LowerSetsReference : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_reference_data("lower_sets_reference.csv")) {
      GTEST_SKIP() << "no reference data beside the repository";
    }
  }
};

struct Published {
  explicit Published(const Graph& graph)
      : nodes(lower_set_nodes(graph, /*with_loss=*/true)),
        blocks(graph, nodes),
        canonical(CanonicalStrategy::of(graph, nodes).value()),
        all(*LowerSetFamily::all(nodes, 100'000, 1 << 28, effort)),
        pruned(LowerSetFamily::pruned(nodes)) {}

  // The schedule itself, run as the published evaluator does.
  ScheduleRun run_orders(const LowerSetFamily& family, const std::vector<std::uint32_t>& chain) {
    std::vector<std::span<const std::uint64_t>> sets;
    sets.reserve(chain.size());
    for (std::uint32_t set : chain) sets.push_back(family[set]);
    return run_schedule(canonical.file(), canonical.schedule(sets), "canonical").value();
  }

  ScheduleRun run_row(const Row& row) {
    const LowerSetFamily& family = row.algorithm == "exact" ? all : pruned;
    const Preference prefer = row.mode == "memory" ? Preference::kMemory : Preference::kTime;
    PublishedStrategy strategy =
        *solve_published(nodes, family, row.budget, prefer, effort).strategy;
    if (prefer == Preference::kTime) {
      const auto overhead = [&](const std::vector<std::uint32_t>& chain) {
        std::vector<std::span<const std::uint64_t>> sets;
        sets.reserve(chain.size());
        for (std::uint32_t set : chain) sets.push_back(family[set]);
        return canonical.overhead(sets);
      };
      const double model_overhead = strategy.overhead;
      strategy = polish_published(nodes, family, row.budget, std::move(strategy), overhead);
      EXPECT_LE(strategy.overhead, model_overhead);
      EXPECT_LE(strategy.peak, row.budget);
    }
    return run_orders(family, strategy.chain);
  }

  Executed run(const LowerSetFamily& family, Bytes budget, Preference prefer) {
    const auto answer = solve_published(nodes, family, budget, prefer, effort);
    if (!answer.strategy) return {};
    std::vector<std::span<const std::uint64_t>> sets;
    sets.reserve(answer.strategy->chain.size());
    for (std::uint32_t set : answer.strategy->chain) sets.push_back(family[set]);
    const auto sequence = blocks.sequence(sets, /*rerun_last=*/true, effort);
    Executed result =
        executed(blocks.graph(), search::plan_from_sequence(blocks.graph(), sequence));
    EXPECT_LE(result.overhead, answer.strategy->overhead);
    return result;
  }

  Effort effort;
  LowerSetNodes nodes;
  LowerSetBlocks blocks;
  CanonicalStrategy canonical;
  LowerSetFamily all;
  LowerSetFamily pruned;
};

Published& published(const std::string& name) {
  static std::map<std::string, std::unique_ptr<Published>> known;
  auto& entry = known[name];
  if (!entry) entry = std::make_unique<Published>(published_graph(name));
  return *entry;
}

// The sizes of the lattices and the least budgets that the published code reaches once its sets
// are tried in the order of inclusion; it bisected to 0.1 %.
TEST_F(LowerSetsReference, SmallestBudgets) {
  const std::map<std::string, std::pair<std::size_t, double>> known{
      {"vgg19", {47, 2107.8e6}}, {"unet", {331, 5547.6e6}}, {"resnet50", {241, 1258.9e6}}};
  for (const auto& [name, facts] : known) {
    SCOPED_TRACE(name);
    Published& model = published(name);
    EXPECT_EQ(model.all.size(), facts.first);
    const auto budget = smallest_published_budget(model.nodes, model.all, model.effort);
    EXPECT_LE(*budget, facts.second);
    EXPECT_GE(*budget, facts.second * 0.999);
    EXPECT_FALSE(
        solve_published(model.nodes, model.all, *budget - 1, Preference::kTime, model.effort)
            .strategy);
  }
  const auto approx = smallest_published_budget(published("unet").nodes, published("unet").pruned,
                                                published("unet").effort);
  EXPECT_NEAR(static_cast<double>(*approx), 5787.3e6, 5787.3e3);
}

TEST_F(LowerSetsReference, LatticeSizes) {
  EXPECT_EQ(published("googlenet").all.size(), 27'358u);
  EXPECT_EQ(published("pspnet").all.size(), 12'533u);
  EXPECT_EQ(published("resnet152").all.size(), 581u);
  EXPECT_EQ(published("densenet").all.size(), 569u);
}

// Time-centric, at every budget of the table: no more overhead than the published code executed, in
// either mode; and within the budget, as the published code promises.
TEST_F(LowerSetsReference, PublishedModelIsNoWorseOnAnyRow) {
  int rows = 0;
  for (const Row& row : feasible_rows()) {
    if (row.budget == 0) continue;
    SCOPED_TRACE(row.graph + " " + row.algorithm + " " + row.mode + " " +
                 std::to_string(row.budget));
    Published& model = published(row.graph);
    const LowerSetFamily& family = row.algorithm == "exact" ? model.all : model.pruned;
    const Executed mine = model.run(family, row.budget, Preference::kTime);
    EXPECT_LE(mine.overhead, row.overhead);
    EXPECT_LE(mine.activations_only, row.budget);
    ++rows;
  }
  EXPECT_EQ(rows, 204);
}

// The default model, given the bytes that the published model really used (all of them counted,
// parameter gradients too): no more of them, and no more overhead. Checked against both our
// reproduction and the row itself.
TEST_F(LowerSetsReference, DefaultModelIsNoWorseOnAnyRow) {
  std::map<std::pair<std::string, Bytes>, search::Outcome>
      outcomes;  // many rows end at the same peak
  for (const Row& row : feasible_rows()) {
    if (row.algorithm == "vanilla_liveness") continue;
    SCOPED_TRACE(row.graph + " " + row.algorithm + " " + row.mode + " " +
                 std::to_string(row.budget));
    const Graph& graph = published_graph(row.graph);
    std::vector<Executed> rivals{{.peak = row.peak, .overhead = row.overhead}};
    if (row.budget > 0) {
      Published& model = published(row.graph);
      const Preference prefer = row.mode == "memory" ? Preference::kMemory : Preference::kTime;
      rivals.push_back(
          model.run(row.algorithm == "exact" ? model.all : model.pruned, row.budget, prefer));
    }
    for (const Executed& rival : rivals) {
      search::Outcome& outcome = outcomes[{row.graph, rival.peak}];
      if (outcome.planner.empty()) {
        outcome = search::solve("lower_sets",
                                {.graph = &graph, .budget = graph.fixed_bytes() + rival.peak})
                      .value();
      }
      EXPECT_EQ(outcome.status, search::PlanStatus::kOptimal) << outcome.note;
      EXPECT_LE(outcome.simulation.activation_peak_bytes, rival.peak);
      EXPECT_LE(outcome.simulation.cost - graph.base_cost(), rival.overhead);
    }
  }
}

TEST_F(LowerSetsReference, NothingIsRunAgainWhenEverythingFits) {
  for (const Row& row : feasible_rows()) {
    if (row.algorithm != "vanilla_liveness") continue;
    SCOPED_TRACE(row.graph);
    const Graph& graph = published_graph(row.graph);
    const auto outcome = search::solve("lower_sets", {.graph = &graph}).value();
    EXPECT_EQ(outcome.status, search::PlanStatus::kOptimal);
    EXPECT_EQ(outcome.simulation.overhead, 0);
    EXPECT_EQ(outcome.simulation.activation_peak_bytes, row.peak);
  }
}

// Which rows come out to the byte, in peak and overhead, when the chain that we find in the
// published model is executed as the published code executes chains. The others, and why:
// - approximate, resnet50, time: the published code loses the step from all but the loss (4 bytes,
//   0 after its rounding) to all, because its sort puts equal sizes in any order; it re-runs one
//   cost unit more, with the same peak;
// - exact: its wrong order of inclusion hides chains that we find.
TEST_F(LowerSetsReference, CanonicalSchedulesAreThePublishedOnes) {
  std::map<std::string, int> equal;
  for (const Row& row : feasible_rows()) {
    if (row.budget == 0) continue;
    SCOPED_TRACE(row.graph + " " + row.algorithm + " " + row.mode + " " +
                 std::to_string(row.budget));
    const ScheduleRun run = published(row.graph).run_row(row);
    const bool same = run.peak_bytes == row.peak && run.overhead_cost == row.overhead;
    equal[row.graph + " " + row.algorithm + " " + row.mode] += same;
    if (row.graph == "resnet50" && row.algorithm == "approx" && row.mode == "time") {
      EXPECT_EQ(run.peak_bytes, row.peak);
      EXPECT_EQ(run.overhead_cost, row.overhead - 1);
    }
    if (row.mode == "time") {
      EXPECT_LE(run.activation_peak_bytes, row.budget);
      // One tie in the model is broken worse, by one ReLU.
      EXPECT_LE(run.overhead_cost, row.overhead + (row.peak == 3444772896 ? 1 : 0));
    }
  }
  const std::map<std::string, int> expected{
      {"vgg19 approx memory", 31},    {"vgg19 approx time", 7},     // of 31 and 7
      {"vgg19 exact memory", 7},      {"vgg19 exact time", 7},      // of 7 and 7
      {"unet approx memory", 31},     {"unet approx time", 7},      // of 31 and 7
      {"unet exact memory", 19},      {"unet exact time", 6},       // of 31 and 7
      {"resnet50 approx memory", 31}, {"resnet50 approx time", 0},  // of 31 and 7
      {"resnet50 exact memory", 22},  {"resnet50 exact time", 3},   // of 31 and 7
  };
  EXPECT_EQ(equal, expected);
}

// In the table of the measurements, beside the peaks with parameter gradients.
TEST_F(LowerSetsReference, CanonicalPeaksWithoutParameterGradients) {
  Published& model = published("vgg19");
  const std::map<std::pair<Bytes, Preference>, double> known{
      {{2107841969, Preference::kTime}, 2087.3},    {{4108739819, Preference::kTime}, 4014.1},
      {{2107841969, Preference::kMemory}, 2003.8},  {{2633064990, Preference::kMemory}, 1644.2},
      {{16018034704, Preference::kMemory}, 2132.3},
  };
  for (const auto& [key, megabytes] : known) {
    const auto answer =
        solve_published(model.nodes, model.all, key.first, key.second, model.effort);
    const ScheduleRun run = model.run_orders(model.all, answer.strategy->chain);
    EXPECT_NEAR(static_cast<double>(run.activation_peak_bytes) / 1e6, megabytes, 0.05);
  }
}

// What the published code was measured to execute once its sets are tried in the order of
// inclusion, at the least budgets of the code as it was; and memory-centric on U-Net.
TEST_F(LowerSetsReference, CanonicalSchedulesOfTheExactSearchInTheRightOrder) {
  const auto run = [](const char* graph, Bytes budget, Preference prefer) {
    Published& model = published(graph);
    const auto answer = solve_published(model.nodes, model.all, budget, prefer, model.effort);
    return model.run_orders(model.all, answer.strategy->chain);
  };
  EXPECT_EQ(run("unet", 5718220082, Preference::kTime).overhead_cost, 129);
  EXPECT_EQ(run("resnet50", 1285051671, Preference::kTime).overhead_cost, 341);
  EXPECT_EQ(run("unet", 11607739368, Preference::kTime).overhead_cost, 24);
  const ScheduleRun lean = run("unet", 7240298314, Preference::kMemory);
  EXPECT_NEAR(static_cast<double>(lean.peak_bytes) / 1e6, 4293.4, 0.05);
  EXPECT_NEAR(lean.overhead_cost / lean.base_cost, 0.909, 0.0005);
}

// The planners themselves: where no function has to run backward in parts, the plan is the
// published schedule, seen by the judge.
TEST_F(LowerSetsReference, PlansOfThePublishedModel) {
  int equal = 0;
  for (const Row& row : feasible_rows()) {
    if (row.algorithm == "vanilla_liveness") continue;
    const Graph& graph = published_graph(row.graph);
    search::Problem problem{.graph = &graph};
    if (row.budget > 0) problem.budget = graph.fixed_bytes() + row.budget;
    problem.options.extra =
        Options{.prefer = row.mode == "memory" ? Preference::kMemory : Preference::kTime,
                .model = PlanningModel::kPublished};
    const std::map<std::string, const char*> planners{
        {"approx", "lower_sets_approx"}, {"exact", "lower_sets"}, {"chen", "chen_cuts"}};
    const auto outcome = search::solve(planners.at(row.algorithm), problem).value();
    ASSERT_TRUE(outcome.plan.has_value()) << outcome.note;
    const Executed mine = executed(graph, *outcome.plan);
    equal += mine.peak == row.peak && mine.overhead == row.overhead;
    if (row.graph == "vgg19" || row.algorithm == "chen") {
      EXPECT_EQ(mine.peak, row.peak) << row.graph << " " << row.budget;
      EXPECT_EQ(mine.overhead, row.overhead) << row.graph << " " << row.budget;
    }
  }
  EXPECT_EQ(equal, 134);  // of 207
}

TEST_F(LowerSetsReference, ChenCutsAreThePublishedOnes) {
  const std::map<std::string, double> activations{
      {"vgg19", 1746.9}, {"unet", 7803.4}, {"resnet50", 1130.4}};
  for (const Row& row : feasible_rows()) {
    if (row.algorithm != "chen") continue;
    SCOPED_TRACE(row.graph);
    Published& model = published(row.graph);
    const LowerSetFamily cuts = LowerSetFamily::cuts(model.nodes);
    const ScheduleRun run = model.run_orders(cuts, published_cuts(cuts));
    EXPECT_EQ(run.peak_bytes, row.peak);
    EXPECT_EQ(run.overhead_cost, row.overhead);
    EXPECT_NEAR(static_cast<double>(run.activation_peak_bytes) / 1e6, activations.at(row.graph),
                0.05);
  }
}

// One set for each op: the planner does little work at any budget, and its plans cost at most a
// twentieth more than the best that a search without limits finds over the same sets.
TEST_F(LowerSetsReference, OneSetForEachOpIsQuickAndNearTheBestOfItsSets) {
  for (const char* name : {"vgg19", "unet", "googlenet", "resnet50", "resnet152"}) {
    SCOPED_TRACE(name);
    const Graph& graph = published_graph(name);
    const LowerSetNodes nodes = lower_set_nodes(graph, /*with_loss=*/false);
    const LowerSetBlocks blocks(graph, nodes);
    const LowerSetFamily pruned = LowerSetFamily::pruned(nodes);
    LowerSetMemory memory(blocks, pruned);
    const Bytes most =
        search::solve("keep_all", {.graph = &graph})->simulation.activation_peak_bytes;
    for (const Bytes percent : {40, 60, 80, 95}) {
      const Bytes budget = most * percent / 100;
      Effort effort;
      const ChainSearchResult best = search_chains(
          memory, pruned, {.budget = budget, .transitions = Transitions::kAll}, effort);
      const auto outcome = search::solve("lower_sets_approx",
                                         {.graph = &graph, .budget = graph.fixed_bytes() + budget});
      ASSERT_TRUE(outcome.ok());
      EXPECT_EQ(outcome->status == search::PlanStatus::kFeasible, best.chain.has_value());
      EXPECT_LE(outcome->work, 1'000 * static_cast<std::int64_t>(nodes.size()));
      if (!best.chain) continue;
      EXPECT_LE(outcome->simulation.cost - graph.base_cost(), best.cost * 1.05) << percent;
    }
  }
}

}  // namespace
}  // namespace regen::published
