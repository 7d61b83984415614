#include "regen/report/document.h"

#include <gtest/gtest.h>

#include "regen/graph/builder.h"
#include "regen/plan/addresses.h"
#include "regen/report/page.h"
#include "regen/simulate/simulate.h"
#include "tests/support/graphs/random_graph.h"
#include "tests/support/graphs/seeds.h"
#include "tests/support/plans/random_plan.h"

namespace regen::report {
namespace {

constexpr Link kLink{.to_host = 2, .to_device = 5, .both = 7};

Graph named_graph(const std::string& name) {
  GraphBuilder builder(name);
  const TensorId made = builder.add_tensor({.name = name, .bytes = 4});
  builder.add_op(
      {.name = name,
       .type = name,
       .outputs = {made},
       .attributes = Json{{"source", name}}.dump(-1, ' ', false, Json::error_handler_t::replace)});
  return std::move(builder).build().value();
}

Json document_of(const Graph& graph, const Plan& plan, Facts facts = {}) {
  facts.link = kLink;
  const Shown shown{&plan, std::move(facts)};
  auto made = document(graph, {&shown, 1}, graph.name());
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *made;
}

Plan keep_all(const Graph& graph) {
  Plan plan{.planner = "by hand"};
  for (const OpId op : graph.ops()) plan.steps.push_back(Step::compute(op));
  return plan;
}

TEST(Document, HoldsTheJudgesNumbers) {
  for (std::uint64_t seed = 400; seed < 420; ++seed) {
    Random random(testing::first_seed() + seed);
    const Graph graph = testing::random_training_graph(random);
    const std::optional<Plan> plan = testing::random_plan(graph, random);
    if (!plan) continue;
    const Simulation judged = simulate(graph, *plan, {.link = kLink, .record = true}).value();
    const Json json = document_of(graph, *plan);
    const Json& shown = json["plans"][0];
    EXPECT_EQ(shown["summary"]["peak_bytes"], judged.peak_bytes);
    EXPECT_EQ(shown["summary"]["peak_step"], judged.peak_step);
    EXPECT_EQ(shown["summary"]["cost"], judged.cost);
    EXPECT_EQ(shown["summary"]["offloaded_bytes"], judged.offloaded_bytes);
    EXPECT_EQ(shown["peak"]["bytes"], judged.peak_bytes);
    EXPECT_EQ(shown["steps"]["kind"].get<std::string>().size(), plan->steps.size());
    for (std::size_t i = 0; i < plan->steps.size(); ++i) {
      EXPECT_EQ(shown["steps"]["device_bytes"][i], judged.records[i].device_bytes);
      const double tick = shown["steps"]["tick"];
      EXPECT_NEAR(shown["steps"]["end"][i].get<double>() * tick, judged.records[i].end, tick);
    }
    Bytes live = shown["peak"]["fixed_bytes"].get<Bytes>() +
                 shown["peak"]["workspace_bytes"].get<Bytes>() +
                 shown["peak"]["unused_bytes"].get<Bytes>();
    for (const Json& row : shown["peak"]["live"]) live += row["bytes"].get<Bytes>();
    EXPECT_EQ(live, judged.peak_bytes);
  }
}

TEST(Document, APlanWithoutAddressesIsPackedAndKeepsItsPeak) {
  Random random(testing::first_seed() + 7);
  const Graph graph = testing::random_training_graph(random);
  const Plan plan = keep_all(graph);
  const Json shown = document_of(graph, plan)["plans"][0];
  EXPECT_FALSE(shown["layout"]["of_plan"].get<bool>());
  EXPECT_GE(shown["layout"]["bytes"], shown["summary"]["activation_peak_bytes"]);
  const AddressedPlan addressed = with_addresses(graph, plan).value();
  const Json own = document_of(graph, addressed.plan)["plans"][0];
  EXPECT_TRUE(own["layout"]["of_plan"].get<bool>());
  EXPECT_EQ(own["layout"]["bytes"], own["summary"]["activation_peak_bytes"]);
  EXPECT_EQ(own["boxes"]["address"].size(), own["boxes"]["from"].size());
}

TEST(Document, FitsIsThePeakWithWhatTheCallerHoldsAgainstTheBudget) {
  const Graph graph = named_graph("a");
  const Plan plan = keep_all(graph);
  const auto fits = [&](Bytes budget, Bytes caller) {
    return document_of(graph, plan,
                       {.budget = budget, .caller_bytes = caller})["plans"][0]["summary"]["fits"];
  };
  EXPECT_EQ(fits(4, 0), true);
  EXPECT_EQ(fits(4, 1), false);
  EXPECT_TRUE(document_of(graph, plan)["plans"][0]["summary"]["fits"].is_null());
}

TEST(Document, RefusesMovesWithoutALink) {
  const Graph graph = named_graph("a");
  Plan plan = keep_all(graph);
  plan.steps.push_back(Step::offload(TensorId(0)));
  const Shown shown{&plan, {}};
  EXPECT_FALSE(document(graph, {&shown, 1}, "a").ok());
}

TEST(Page, HoldsTheDocumentAndNothingEndsItsElement) {
  for (const std::string name : {"</script><script>alert(1)</script>", "<!--", "a\u2028\u2029b",
                                 "@REPORT@", "\xff\xfe", "\x01\x1b[31m"}) {
    const Graph graph = named_graph(name);
    const Plan plan = keep_all(graph);
    const Json json = document_of(graph, plan);
    const std::string text = script_text(json);
    EXPECT_EQ(text.find('<'), std::string::npos);
    EXPECT_EQ(text.find("\xe2\x80\xa8"), std::string::npos);
    EXPECT_EQ(parse_json(text, "page").value(), json);
    const std::string html = page(json);
    EXPECT_NE(html.find(text), std::string::npos);
    EXPECT_EQ(html.find("@STYLE"), std::string::npos);
  }
}

TEST(Page, ALabelOfMegabytesIsShortened) {
  std::string name;
  name.resize(10'000'000, 'x');
  const Graph graph = named_graph(name);
  const Plan plan = keep_all(graph);
  EXPECT_LT(page(document_of(graph, plan)).size(), 150'000u);
}

TEST(Page, AFrameHoldsThePageAsAnAttribute) {
  const Graph graph = named_graph("a\"b&<c>");
  const Plan plan = keep_all(graph);
  const std::string html = frame(document_of(graph, plan), 700);
  const std::size_t begin = html.find("srcdoc=\"") + 8;
  const std::size_t end = html.find('"', begin);
  EXPECT_EQ(html.substr(end), "\"></iframe>");
  EXPECT_EQ(html.substr(begin, end - begin).find('<'), std::string::npos);
}

}  // namespace
}  // namespace regen::report
