// Other orders of first runs: valid, worth having where branches wait for each other, and plans for
// them are plans for the graph.
#include "regen/search/portfolio/op_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "regen/graph/analysis.h"
#include "regen/graph/builder.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/search/build/sequence.h"
#include "regen/search/portfolio/order_choice.h"
#include "regen/search/registry.h"
#include "regen/simulate/simulate.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::search {
namespace {

Bytes peak_of(const Graph& graph, const std::vector<OpId>& order) {
  return simulate(graph, plan_from_sequence(graph, order))->peak_bytes;
}

std::vector<OpId> as_it_is(const Graph& graph) {
  return {graph.ops().begin(), graph.ops().end()};
}

TEST(OrderRules, OrdersAreValidForRandomGraphs) {
  int different = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 12});
    if (!check_sequences_possible(graph).ok()) continue;
    const OrderRules rules(graph);
    EXPECT_TRUE(rules.allow(as_it_is(graph)));
    for (const auto& order : {rules.early_release(), rules.late_making()}) {
      EXPECT_TRUE(rules.allow(order)) << "seed " << seed;
      const Plan plan = plan_from_sequence(graph, order);
      const auto valid = validate(graph, plan);
      EXPECT_TRUE(valid.ok()) << "seed " << seed << ": " << valid.error().message;
      different += order != as_it_is(graph);
    }
  }
  EXPECT_GT(different, 100);
}

TEST(OrderRules, RefusesWhatComesTooEarly) {
  Random random(3);
  const Graph graph = testing::random_training_graph(random, {.max_layers = 6});
  std::vector<OpId> order = as_it_is(graph);
  std::ranges::reverse(order);
  EXPECT_FALSE(OrderRules(graph).allow(order));
  order.pop_back();
  EXPECT_FALSE(OrderRules(graph).allow(order));
}

// Three branches from one value; each makes something large and then something small of it. In the
// order of the graph all large values are there at once.
Graph branches() {
  GraphBuilder builder("branches");
  const TensorId start = builder.add_tensor({.name = "start", .bytes = 1});
  builder.add_op({.name = "start", .type = "op", .outputs = {start}, .variants = {{.cost = 1}}});
  std::vector<TensorId> large;
  std::vector<TensorId> small;
  for (int i = 0; i < 3; ++i) {
    large.push_back(builder.add_tensor({.name = "large" + std::to_string(i), .bytes = 100}));
    small.push_back(builder.add_tensor({.name = "small" + std::to_string(i), .bytes = 10}));
  }
  const TensorId sum =
      builder.add_tensor({.name = "sum", .bytes = 10, .kind = TensorKind::kOutput});
  const auto add = [&](std::vector<TensorId> inputs, TensorId output) {
    builder.add_op({.name = "op",
                    .type = "op",
                    .inputs = std::move(inputs),
                    .outputs = {output},
                    .variants = {{.cost = 1}}});
  };
  for (const TensorId t : large) add({start}, t);
  for (std::size_t i = 0; i < 3; ++i) add({large[i]}, small[i]);
  add(small, sum);
  return std::move(builder).build().value();
}

TEST(OrderRules, BranchesComeOneAfterTheOther) {
  const Graph graph = branches();
  EXPECT_EQ(peak_of(graph, as_it_is(graph)), 310);
  const OrderRules rules(graph);
  // start, two small values, the third large one and what is made of it.
  EXPECT_EQ(peak_of(graph, rules.early_release()), 130);
  EXPECT_EQ(peak_of(graph, rules.late_making()), 130);
}

TEST(OrderView, PlansForTheViewArePlansForTheGraph) {
  const Graph graph = branches();
  const auto view = OrderView::make(graph, OrderRules(graph).early_release());
  ASSERT_TRUE(view.ok());
  const Plan plan = plan_from_sequence(view->graph(), as_it_is(view->graph()));
  const auto in_view = validate(view->graph(), plan);
  const auto in_graph = validate(graph, view->original(plan));
  ASSERT_TRUE(in_view.ok() && in_graph.ok());
  EXPECT_EQ(in_view->peak_bytes, in_graph->peak_bytes);
  EXPECT_EQ(in_graph->peak_bytes, 130);
}

// Where even quick plans take long, most of the effort is left for planning.
TEST(PromisingOrder, TakesASmallPartOfTheEffort) {
  const Graph graph = zoo_graph("ResNet50", {.batch = 1}).value();
  const Problem problem{.graph = &graph, .budget = structural_bound(graph).bytes};
  Effort all{Limits{}};
  promising_order(problem, all);
  Effort limited{Limits{.work = all.work()}};
  promising_order(problem, limited);
  EXPECT_GT(limited.work(), 0);
  EXPECT_LT(limited.work(), all.work() / 4);
}

TEST(Auto, RunsOpsInAnotherOrderWhereThatIsCheaper) {
  const Graph graph = branches();
  const Problem problem{.graph = &graph, .budget = 130};
  const Outcome outcome = *solve("auto", problem);
  EXPECT_EQ(outcome.status, PlanStatus::kOptimal) << outcome.note;
  EXPECT_EQ(outcome.simulation.cost, graph.base_cost());
  EXPECT_EQ(outcome.simulation.peak_bytes, 130);
  EXPECT_EQ(outcome.bound_kind, BoundKind::kEveryPlan);
  Problem in_order = problem;
  in_order.options.keep_order = true;
  const Outcome kept = *solve("auto", in_order);
  // Two large values and what was made of them are dropped and made again, or there is no plan.
  EXPECT_TRUE(!kept.plan || kept.simulation.cost > graph.base_cost() ||
              kept.simulation.peak_bytes > 130);
}

}  // namespace
}  // namespace regen::search
