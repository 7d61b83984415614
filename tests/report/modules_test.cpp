#include "regen/report/modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/plan/addresses.h"
#include "regen/report/category.h"
#include "regen/report/module_totals.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/plans/random_plan.h"

namespace regen::report {
namespace {

using ::testing::ElementsAre;

TensorId add_op(GraphBuilder& builder, const std::string& name, Phase phase,
                const std::string& attributes = "") {
  const TensorId made = builder.add_tensor({.name = name, .bytes = 4});
  builder.add_op(
      {.name = name, .type = "f", .phase = phase, .outputs = {made}, .attributes = attributes});
  return made;
}

TEST(ModuleTree, ACapturedStepSaysItsModules) {
  GraphBuilder builder("captured");
  const TensorId weight = builder.add_tensor(
      {.name = "layers.0.weight.exp_avg", .bytes = 8, .kind = TensorKind::kState});
  add_op(builder, "convolution", Phase::kForward, R"({"module":"layers.0","source":"m.py:3"})");
  add_op(builder, "relu", Phase::kForward, R"({"module":"layers"})");
  add_op(builder, "loss", Phase::kForward);
  add_op(builder, "convolution_backward", Phase::kBackward, R"({"module":"layers.0"})");
  add_op(builder, "lerp", Phase::kUpdate);
  const ModuleTree tree = module_tree(std::move(builder).build().value());
  EXPECT_THAT(tree.paths.raw(),
              ElementsAre("", "layers", "layers.0", kOutsideModule, kUpdateModule));
  EXPECT_EQ(tree.names[ModuleId(2)], "0");
  EXPECT_EQ(tree.parents[ModuleId(2)], ModuleId(1));
  EXPECT_THAT(tree.of_op.raw(),
              ElementsAre(ModuleId(2), ModuleId(1), ModuleId(3), ModuleId(2), ModuleId(4)));
  EXPECT_EQ(tree.of_tensor[weight], ModuleId(2));
  EXPECT_EQ(tree.sources[OpId(0)], "m.py:3");
  EXPECT_EQ(tree.sources[OpId(1)], "");
}

TEST(ModuleTree, ElsewhereForwardOpsAreTheModules) {
  GraphBuilder builder("zoo");
  add_op(builder, "h0/mlp", Phase::kForward);
  add_op(builder, "h1/mlp", Phase::kForward);
  add_op(builder, "grad h1/mlp/input", Phase::kBackward);
  add_op(builder, "update h0/mlp/kernel", Phase::kUpdate);
  const ModuleTree tree = module_tree(std::move(builder).build().value());
  EXPECT_THAT(tree.paths.raw(), ElementsAre("", "h0", "h0/mlp", "h1", "h1/mlp", kUpdateModule));
  EXPECT_THAT(tree.of_op.raw(), ElementsAre(ModuleId(2), ModuleId(4), ModuleId(4), ModuleId(5)));
}

TEST(ModuleTree, AHostilePathMakesFewModulesWithShortNames) {
  GraphBuilder builder("hostile");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a/";
  add_op(builder, deep, Phase::kForward);
  add_op(builder, std::string(1'000'000, 'x'), Phase::kForward);
  add_op(builder, "////", Phase::kForward);
  add_op(builder, "", Phase::kForward);
  add_op(builder, "line\nbreak\x01", Phase::kForward);
  const ModuleTree tree = module_tree(std::move(builder).build().value());
  EXPECT_LT(tree.size(), 40u);
  for (const std::string& path : tree.paths) {
    EXPECT_LT(path.size(), 400u);
    EXPECT_EQ(path.find('\n'), std::string::npos);
  }
}

TEST(ModuleTree, AttributesOfOtherProgramsMeanNothing) {
  GraphBuilder builder("attributes");
  add_op(builder, "a", Phase::kForward, R"({"module":7,"source":["x"]})");
  add_op(builder, "b", Phase::kForward, R"({"other":"x"})");
  const ModuleTree tree = module_tree(std::move(builder).build().value());
  EXPECT_THAT(tree.paths.raw(), ElementsAre("", "a", "b"));
}

TEST(Categories, SayWhatTheBytesAreFor) {
  GraphBuilder builder("categories");
  const auto fixed = [&](const char* name, TensorKind kind) {
    return builder.add_tensor({.name = name, .bytes = 4, .kind = kind});
  };
  const TensorId x = fixed("x", TensorKind::kInput);
  const TensorId w = fixed("w", TensorKind::kParam);
  const TensorId momentum = fixed("momentum", TensorKind::kState);
  const TensorId mean = fixed("running mean", TensorKind::kState);
  const TensorId kept = fixed("gradient of the caller", TensorKind::kState);
  const TensorId y = add_op(builder, "y", Phase::kForward);
  builder.add_op({.name = "dk", .phase = Phase::kBackward, .inputs = {y}, .mutates = {kept}});
  const TensorId dw = builder.add_tensor({.name = "dw", .bytes = 4, .kind = TensorKind::kOutput});
  builder.add_op({.name = "dw", .phase = Phase::kBackward, .inputs = {y}, .outputs = {dw}});
  builder.add_op(
      {.name = "update", .phase = Phase::kUpdate, .inputs = {dw}, .mutates = {w, momentum}});
  const Graph graph = std::move(builder).build().value();
  const auto found = categories(graph);
  EXPECT_EQ(found[x], Category::kInput);
  EXPECT_EQ(found[w], Category::kParameter);
  EXPECT_EQ(found[momentum], Category::kOptimizer);
  EXPECT_EQ(found[mean], Category::kBuffer);
  EXPECT_EQ(found[kept], Category::kGradient);
  EXPECT_EQ(found[y], Category::kActivation);
  EXPECT_EQ(found[dw], Category::kGradient);
}

// Whatever is moved, run again or waited for is some module's, once.
TEST(ModuleTotals, TheWholeNetworkIsTheJudgesNumbers) {
  constexpr Link kLink{.to_host = 2, .to_device = 5, .both = 7};
  int checked = 0;
  for (std::uint64_t seed = 300; seed < 360; ++seed) {
    Random random(testing::first_seed() + seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 8});
    const std::optional<Plan> plan = testing::random_plan(graph, random);
    if (!plan) continue;
    const Simulation simulation = simulate(graph, *plan, {.link = kLink, .record = true}).value();
    const std::vector<Bytes> addresses(allocation_lifetimes(graph, *plan).size(), 0);
    const ModuleTree tree = module_tree(graph);
    const auto totals =
        module_totals(graph, *plan, simulation, tree, boxes(graph, *plan, addresses));
    const ModuleTotals& all = totals[tree.root()];
    EXPECT_EQ(all.ops, graph.num_ops());
    EXPECT_EQ(all.recomputed, simulation.recomputed);
    EXPECT_EQ(all.moved_bytes, simulation.offloaded_bytes + simulation.fetched_bytes);
    EXPECT_EQ(all.peak_bytes, simulation.activation_peak_bytes);
    EXPECT_DOUBLE_EQ(all.cost, simulation.compute_cost);
    EXPECT_NEAR(all.added_cost(), simulation.cost - graph.base_cost(), 1e-9 * simulation.cost);
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

}  // namespace
}  // namespace regen::report
