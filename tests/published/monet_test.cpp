// Planner monet: its schedules against everything there is on small instances, against the
// published objectives, and as plans of graphs of any kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/plan/explain.h"
#include "regen/published/graph_formats.h"
#include "regen/published/monet/monet_annealing.h"
#include "regen/published/monet/monet_solver.h"
#include "regen/search/judge.h"
#include "tests/graph/format_test_data.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/oracles/monet_oracle.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::published {
namespace {

using ::testing::HasSubstr;

TEST(MonetMode, WordsSwitchDecisionsOn) {
  EXPECT_EQ(parse_monet_mode("all").value(), MonetMode{});
  const MonetMode some = parse_monet_mode("inplace_multiway").value();
  EXPECT_TRUE(some.in_place && some.multiway && some.checkpointing);
  EXPECT_FALSE(some.conv || some.newnode);
  EXPECT_FALSE(parse_monet_mode("conv_normal_ablation").value().checkpointing);
  for (const char* text : {"all", "normal", "inplace_conv", "conv_multiway_newnode_ablation"}) {
    EXPECT_EQ(to_string(parse_monet_mode(text).value()), text);
  }
  const auto bad = parse_monet_mode("inplace_fast");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, HasSubstr("bad mode 'inplace_fast'"));
}

TEST(Monet, EqualsExhaustiveSearchOnSmallInstances) {
  int feasible = 0, infeasible = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const MonetInstance instance = testing::random_monet_instance(random);
    const Bytes budget = random.between(7, 18) << 20;
    MonetQuestion question{.instance = &instance, .budget = budget};
    if (seed % 8 == 7) question.mode.checkpointing = false;
    if (seed % 8 == 3) question.mode.in_place = false;
    const auto least = testing::least_monet_objective(
        instance, budget,
        {.in_place = question.mode.in_place, .ablation = !question.mode.checkpointing});
    Effort effort;
    const auto answer = solve_monet(question, effort);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->solution.has_value(), least.has_value());
    EXPECT_EQ(answer->infeasible, !least.has_value());
    (least ? feasible : infeasible) += 1;
    if (!least || !answer->solution) continue;
    EXPECT_EQ(answer->objective, *least);
    EXPECT_LE(answer->bound, static_cast<double>(*least));
    EXPECT_TRUE(answer->optimal());
  }
  EXPECT_GT(feasible, 6);
  EXPECT_GT(infeasible, 2);
}

// Any single flip that matters is found, and the objective follows the matrices.
TEST(Monet, EvaluatorSeesDamage) {
  Random random(1);
  MonetInstance instance = testing::random_monet_instance(random);
  while (!instance.inplace_list.empty() || !instance.conv_list.empty()) {
    instance = testing::random_monet_instance(random);
  }
  Effort effort;
  const auto answer = solve_monet({.instance = &instance}, effort);
  ASSERT_TRUE(answer.ok() && answer->solution);
  const Bytes enough = Bytes{1} << 30;
  const auto verdict_of = [&](const auto& damage, Bytes budget) {
    MonetSolution damaged = *answer->solution;
    damage(damaged);
    return evaluate_monet(instance, damaged, budget, {});
  };
  const auto nothing = [](MonetSolution&) {};
  const MonetVerdict whole = verdict_of(nothing, enough);
  EXPECT_EQ(whole.violation, "");
  EXPECT_EQ(whole.objective, answer->objective);
  EXPECT_EQ(verdict_of(nothing, whole.peak * 1024).violation, "");
  EXPECT_THAT(verdict_of(nothing, (whole.peak - 1) * 1024).violation, HasSubstr("over the budget"));
  const auto expect = [&](const auto& damage, const char* reason) {
    EXPECT_THAT(verdict_of(damage, enough).violation, HasSubstr(reason));
  };
  expect([](MonetSolution& x) { x.s[0][0] = 1; }, "stored before the step");
  expect([](MonetSolution& x) { x.r[0][0] = x.p[0][0] = 0; }, "not in the forward pass");
  expect([](MonetSolution& x) { x.m[1] = std::vector<std::uint8_t>(x.m[1].size()); },
         "no implementation");
  // What a stage neither had nor made cannot be stored after it; unless the stage misses it first.
  int from_nowhere = 0;
  for (std::size_t t = 1; t + 1 < answer->solution->s.size(); ++t) {
    for (std::size_t i = 0; i < answer->solution->s[t].size(); ++i) {
      const auto damage = [&](MonetSolution& x) {
        x.s[t][i] = x.r[t][i] = x.p[t][i] = 0;
        x.s[t + 1][i] = 1;
      };
      const std::string violation = verdict_of(damage, enough).violation;
      EXPECT_NE(violation, "") << t << " " << i;
      from_nowhere += violation.find("stored from nowhere") != std::string::npos;
    }
  }
  EXPECT_GT(from_nowhere, 0);
  expect([](MonetSolution& x) { x.p[1][0] = 1; }, "present but not computed");
  expect([](MonetSolution& x) { x.ip[0][1] = 1; }, "in place against the list");
  const MonetVerdict costlier =
      verdict_of([](MonetSolution& x) { x.r[1][0] = x.p[1][0] = 1; }, enough);
  EXPECT_EQ(costlier.violation, "");
  EXPECT_EQ(costlier.objective, whole.objective + monet_ticks(instance.nodes[0].rerun.ms[0]));
}

// Annealing and exact neighbourhoods alone, without the integer program.
TEST(Monet, SearchComesToTheOptimumOfSmallInstances) {
  int feasible = 0, equal = 0;
  for (std::uint64_t seed = 100; seed < 112; ++seed) {
    Random random(seed);
    const MonetInstance instance = testing::random_monet_instance(random);
    const Bytes budget = random.between(9, 18) << 20;
    const auto least = testing::least_monet_objective(instance, budget, {});
    const auto model = make_monet_model(instance, {}, budget);
    ASSERT_TRUE(model.ok());
    Effort effort(Limits{.work = 200'000});
    MonetAnnealing annealing(*model, seed);
    annealing.run(2'000, seed % 2 == 0 ? kStrictCooling : kTolerantCooling, effort);
    MonetSearch search(*model, seed);
    search.offer(annealing.best() ? annealing.best()->storage : annealing.last());
    search.run(effort);
    if (!least) {
      EXPECT_FALSE(search.best());
      continue;
    }
    ++feasible;
    if (!search.best()) continue;
    EXPECT_GE(search.best()->ticks, *least) << seed;
    equal += search.best()->ticks == *least;
  }
  EXPECT_GT(feasible, 5);
  EXPECT_EQ(equal, feasible);
}

MonetInstance published(const std::string& name) {
  const std::string file = "monet_instances/" + name + ".json";
  return read_monet_instance(read_reference(file), file).value();
}

// The recorded objective of these rows is proven optimal (gap 0.0000 %).
TEST(Monet, GivesTheRecordedObjectiveAndRefusesTheRecordedBudgets) {
  if (!has_reference_data("monet_objectives.csv")) GTEST_SKIP() << "no reference data";
  const MonetInstance instance = published("vgg16_176_inplace_normal");
  Effort effort;
  const auto answer = solve_monet({.instance = &instance, .budget = Bytes{8} << 30}, effort);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_TRUE(answer->optimal());
  EXPECT_EQ(answer->objective, 266436);
  const auto none = solve_monet({.instance = &instance, .budget = Bytes{7} << 30}, effort);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->infeasible);
}

// Here the best known schedule keeps the longest skip, drops it, and keeps it again when it was
// recomputed, all between two reads; without such courses, and with bytes over the budget cheap at
// first, no run comes within 0.5 % of the recorded 2091.02 ms. About one strict run of twelve does:
// where the sequence of draws changes, so do the seeds.
TEST(Monet, StrictRunsReachTheValleyOfTheTightUNet) {
  if (!has_reference_data("monet_objectives.csv")) GTEST_SKIP() << "no reference data";
  const MonetInstance instance = published("un_11_inplace_normal");
  const auto model = make_monet_model(instance, {}, Bytes{5} << 30);
  ASSERT_TRUE(model.ok());
  const auto best_of = [&](const MonetCooling& cooling) {
    Ticks best = std::numeric_limits<Ticks>::max();
    for (std::uint64_t seed : {1, 2}) {
      MonetAnnealing annealing(*model, seed);
      Effort effort;
      annealing.run(100'000, cooling, effort);
      if (annealing.best()) best = std::min(best, annealing.best()->ticks);
    }
    return best;
  };
  EXPECT_LE(best_of(kStrictCooling), 210'147);
  EXPECT_GT(best_of(kTolerantCooling), 210'147);
}

// Without a budget every op runs once in its cheapest way: the least the costs allow, by hand.
TEST(Monet, WithoutABudgetTakesTheCheapestWayOfEachOp) {
  if (!has_reference_data("monet_objectives.csv")) GTEST_SKIP() << "no reference data";
  for (const char* name : {"vgg16_176_inplace_conv_normal", "un_11_inplace_multiway"}) {
    const MonetInstance instance = published(name);
    Effort effort;
    const auto answer = solve_monet({.instance = &instance}, effort);
    ASSERT_TRUE(answer.ok() && answer->solution) << name;
    Ticks least = 0;
    for (std::uint32_t id = 0; id < instance.nodes.size(); ++id) {
      const MonetNode& node = instance.nodes[id];
      if (node.kind == MonetKind::kIntermediate) continue;
      std::vector<double> ms = node.first_run.ms;
      if (node.kind == MonetKind::kForward && !instance.conv_list.contains(id)) ms.resize(1);
      if (instance.inplace_list.contains(id)) ms = node.in_place.ms;
      std::erase_if(ms, [](double value) { return value < 0; });
      least += monet_ticks(*std::min_element(ms.begin(), ms.end()));
    }
    EXPECT_GE(answer->objective, least);
    EXPECT_LE(static_cast<double>(answer->objective), 1.01 * static_cast<double>(least));
  }
}

TEST(Monet, PlansOfAnInstanceKeepTheBudgetOfTheJudgeToo) {
  if (!has_reference_data("monet_objectives.csv")) GTEST_SKIP() << "no reference data";
  const std::string file = "monet_instances/vgg16_176_inplace_multiway.json";
  const Graph graph = read_graph(read_reference(file), file).value();
  search::Problem problem{.graph = &graph, .budget = Bytes{9} << 30};
  problem.options.gap = 0.05;
  const auto outcome = search::solve("monet", problem);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->status, search::PlanStatus::kFeasible);
  EXPECT_LE(outcome->simulation.peak_bytes, *problem.budget);
  ASSERT_EQ(outcome->figures.size(), 3u);
  EXPECT_EQ(outcome->figures[1].first, "monet_objective_ms");
  // Rounding up each run by less than a tick is the only difference between model and judge.
  EXPECT_LE(outcome->simulation.cost * 1000, outcome->figures[1].second);
  EXPECT_GT(outcome->simulation.cost * 1000, 0.99 * outcome->figures[1].second);
}

TEST(Monet, UsesTheVariantsOfOrdinaryGraphs) {
  int cheaper = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const Graph graph = testing::random_training_graph(random, {.max_layers = 5});
    const auto outcome = search::solve("monet", {.graph = &graph});
    ASSERT_TRUE(outcome.ok()) << outcome.error().message;
    if (!outcome->plan) {
      EXPECT_THAT(outcome->note, HasSubstr("overwrites tensor")) << seed;
      continue;
    }
    cheaper += outcome->simulation.cost < graph.base_cost();
  }
  EXPECT_GT(cheaper, 5);
}

}  // namespace
}  // namespace regen::published
