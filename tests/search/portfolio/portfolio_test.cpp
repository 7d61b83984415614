// The table of `auto`: every row can be switched off by name, and the trace says what was asked.
#include "regen/search/portfolio/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "regen/graph/analysis.h"
#include "regen/models/zoo.h"
#include "regen/plan/explain.h"
#include "regen/search/judge.h"
#include "regen/search/registry.h"
#include "regen/search/search_trace.h"

namespace regen::search {
namespace {

std::set<std::string> sources(const SearchTrace& trace) {
  std::set<std::string> names;
  for (const SearchEvent& event : trace.events) names.insert(event.source);
  return names;
}

struct Search {
  Graph graph = zoo_graph("vgg_unet").value();
  SearchTrace trace;

  Outcome run(const std::vector<std::string>& without) {
    const Ablation ablation = Ablation::parse(without).value();
    const Bytes low = structural_bound(graph).bytes;
    const Bytes high = live_bytes_keep_all(graph).peak_bytes;
    const Problem problem{
        .graph = &graph, .budget = low + (high - low) / 3, .ablation = &ablation, .trace = &trace};
    return solve(own_planner("auto"), problem, {.work = 300'000}).value();
  }
};

TEST(PortfolioTable, FractionsAndRangesMakeSense) {
  for (const Row& row : portfolio_table()) {
    EXPECT_GT(row.fraction, 0) << name_of(row);
    EXPECT_LE(row.fraction, 1) << name_of(row);
    EXPECT_LE(row.fewest_ops, row.most_ops) << name_of(row);
    if (row.round != Round::kOpinion) {  // of which some wait for an expensive plan
      EXPECT_EQ(row.above > 0, row.round == Round::kRescue) << name_of(row);
    }
  }
}

TEST(Ablation, RefusesUnknownNamesWithTheList) {
  const auto refused = Ablation::parse(std::vector<std::string>{"strr"});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'strr'"), std::string::npos);
  EXPECT_NE(refused.error().message.find("str@exact"), std::string::npos);
}

TEST(Ablation, SwitchesOffRowsPlannersRoundsAndParts) {
  Search all;
  const Outcome whole = all.run({});
  ASSERT_TRUE(whole.plan.has_value());
  EXPECT_TRUE(sources(all.trace).contains("keep_all@quick"));
  EXPECT_TRUE(sources(all.trace).contains("covering_bound"));
  for (const std::string name : {"capuchin", "capuchin@quick"}) {
    Search one;
    one.run({name});
    EXPECT_FALSE(sources(one.trace).contains("capuchin@quick")) << name;
    EXPECT_TRUE(sources(one.trace).contains("keep_all@quick")) << name;
  }
  Search no_quick;
  no_quick.run({"quick", "covering_bound"});
  const std::set<std::string> asked = sources(no_quick.trace);
  EXPECT_FALSE(asked.contains("covering_bound"));
  EXPECT_TRUE(std::ranges::none_of(
      asked, [](const std::string& name) { return name.ends_with("@quick"); }));
}

TEST(SearchTrace, NamesTheSourcesOfTheBestPlanAndTheBound) {
  Search search;
  const Outcome outcome = search.run({});
  ASSERT_NE(search.trace.best_plan(), nullptr);
  EXPECT_NEAR(*search.trace.best_plan()->cost, outcome.simulation.cost,
              1e-9 * outcome.simulation.cost);
  ASSERT_NE(search.trace.first_plan(), nullptr);
  EXPECT_GE(*search.trace.first_plan()->cost, *search.trace.best_plan()->cost);
  ASSERT_NE(search.trace.best_bound(), nullptr);
  EXPECT_GE(*search.trace.best_bound()->bound, 0);
}

}  // namespace
}  // namespace regen::search
