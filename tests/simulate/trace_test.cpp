#include "regen/simulate/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/base/json.h"
#include "regen/graph/builder.h"

namespace regen {
namespace {

using ::testing::ElementsAre;

// a (10 bytes) and b (4), then c reads both. Costs 2, 3 and 1, a re-run of a 1.5.
Graph small_graph(CostUnit unit) {
  GraphBuilder builder("small", unit);
  const TensorId w = builder.add_tensor({.name = "w", .bytes = 100, .kind = TensorKind::kParam});
  const TensorId a = builder.add_tensor({.name = "a \"1\"\n", .bytes = 10});
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 4});
  const TensorId c = builder.add_tensor({.name = "c", .bytes = 1, .kind = TensorKind::kOutput});
  builder.add_op({.name = "a \"1\"\n",
                  .type = "conv",
                  .inputs = {w},
                  .outputs = {a},
                  .variants = {{.name = "gemm", .cost = 2, .rerun_cost = 1.5, .workspace = 7}}});
  builder.add_op({.name = "b", .type = "relu", .outputs = {b}, .variants = {{.cost = 3}}});
  builder.add_op({.name = "c",
                  .type = "add",
                  .phase = Phase::kLoss,
                  .inputs = {a, b},
                  .outputs = {c},
                  .variants = {{.cost = 1}}});
  return std::move(builder).build().value();
}

// a goes to the host while b runs, and comes back for c.
Plan swap_plan() {
  const TensorId a(1);
  return {.planner = "by hand",
          .steps = {Step::compute(OpId(0)), Step::offload(a), Step::compute(OpId(1)),
                    Step::release(a), Step::fetch(a), Step::compute(OpId(2))}};
}

// The step's timeline at 2 bytes per unit to the host and 5 to the device:
//
//   compute    a [0,2]  b [2,5]  wait [5,7] for the offload  wait [7,9]  c [9,10]
//   to host             a [2,7]: 10 bytes at 2
//   to device                                               a [7,9]: 10 bytes at 5
constexpr Link kLink{.to_host = 2, .to_device = 5, .both = 7};

Json trace_of(const Graph& graph, const Plan& plan, bool record = true) {
  const auto simulation = simulate(graph, plan, {.link = kLink, .record = record});
  EXPECT_TRUE(simulation.ok()) << simulation.error().message;
  const auto document = parse_json(chrome_trace(graph, plan, *simulation), "trace");
  EXPECT_TRUE(document.ok()) << document.error().message;
  return *document;
}

std::vector<Json> events(const Json& document, const std::string& phase, int thread = 0) {
  std::vector<Json> found;
  for (const Json& event : document["traceEvents"]) {
    if (event["ph"] != phase || (thread != 0 && event["tid"] != thread)) continue;
    found.push_back(event);
  }
  return found;
}

// "name start+duration" of each event, in microseconds.
std::vector<std::string> spans(const Json& document, int thread) {
  std::vector<std::string> found;
  for (const Json& event : events(document, "X", thread)) {
    found.push_back(event["name"].get<std::string>() + " " +
                    format_exact(event["ts"].get<double>()) + "+" +
                    format_exact(event["dur"].get<double>()));
  }
  return found;
}

// "time: value" of each change, in seconds.
std::vector<std::string> counter(const Json& document, const std::string& name) {
  std::vector<std::string> found;
  for (const Json& event : events(document, "C")) {
    if (event["name"] != name) continue;
    found.push_back(format_exact(event["ts"].get<double>() / 1e6) + ": " +
                    std::to_string(event["args"]["bytes"].get<Bytes>()));
  }
  return found;
}

TEST(ChromeTrace, ShowsTheThreeQueues) {
  const Json document = trace_of(small_graph(CostUnit::kSecond), swap_plan());
  EXPECT_THAT(spans(document, 1),
              ElementsAre("a \"1\"\n 0+2e+06", "b 2e+06+3e+06", "wait 5e+06+2e+06",
                          "wait 7e+06+2e+06", "c 9e+06+1e+06"));
  EXPECT_THAT(spans(document, 2), ElementsAre("offload a \"1\"\n 2e+06+5e+06"));
  EXPECT_THAT(spans(document, 3), ElementsAre("fetch a \"1\"\n 7e+06+2e+06"));
}

// Fixed 100. While a runs 100 + 10 + 7; then 110; with b 114; without a 104; with a again 114;
// with c 115 to the end. The host has 10 from the offload to the step that waits for the fetch.
TEST(ChromeTrace, CountsBytesWhenTheComputeQueueReachesTheStep) {
  const Json document = trace_of(small_graph(CostUnit::kSecond), swap_plan());
  EXPECT_THAT(counter(document, "device bytes"),
              ElementsAre("0: 117", "2: 110", "2: 114", "7: 104", "7: 114", "9: 115", "10: 115"));
  EXPECT_THAT(counter(document, "host bytes"), ElementsAre("0: 0", "2: 10", "10: 10"));
}

TEST(ChromeTrace, DescribesEveryEvent) {
  Plan plan{.steps = {Step::compute(OpId(0)), Step::release(TensorId(1)), Step::compute(OpId(0)),
                      Step::compute(OpId(1)), Step::compute(OpId(2))}};
  const auto found = events(trace_of(small_graph(CostUnit::kSecond), plan), "X", 1);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0]["cat"], "forward");
  EXPECT_EQ(found[0]["args"]["type"], "conv");
  EXPECT_EQ(found[0]["args"]["variant"], "gemm");
  EXPECT_EQ(found[0]["args"]["recompute"], "no");
  EXPECT_EQ(found[0]["args"]["bytes"], 10);
  EXPECT_EQ(found[0]["args"]["workspace"], 7);
  EXPECT_EQ(found[1]["args"]["recompute"], "yes");
  EXPECT_EQ(found[1]["args"]["step"], 2);
  EXPECT_EQ(found[1]["dur"], 1.5e6);
  EXPECT_FALSE(found[2]["args"].contains("variant"));
  EXPECT_EQ(found[3]["cat"], "loss");
}

TEST(ChromeTrace, NamesItsThreadsAndItsSource) {
  const Json document = trace_of(small_graph(CostUnit::kSecond), swap_plan());
  std::vector<std::string> names;
  for (const Json& event : events(document, "M")) {
    if (event["name"] == "thread_name") names.push_back(event["args"]["name"].get<std::string>());
  }
  EXPECT_THAT(names, ElementsAre("compute", "to host", "to device"));
  EXPECT_EQ(document["otherData"]["graph"], "small");
  EXPECT_EQ(document["otherData"]["planner"], "by hand");
  EXPECT_EQ(document["otherData"]["cost_unit"], "second");
  EXPECT_EQ(document["otherData"]["microseconds_per_unit"], 1e6);
}

// The step costs 10 flop; one decade up and it would be drawn as 10 seconds, so 1e5 each.
TEST(ChromeTrace, ScalesFlopToASensibleLength) {
  const Json document = trace_of(small_graph(CostUnit::kFlop), swap_plan());
  EXPECT_EQ(document["otherData"]["cost_unit"], "flop");
  EXPECT_EQ(document["otherData"]["microseconds_per_unit"], 1e5);
  EXPECT_THAT(spans(document, 2), ElementsAre("offload a \"1\"\n 2e+05+5e+05"));
}

TEST(ChromeTrace, SurvivesHugeAndZeroCosts) {
  for (const double cost : {0.0, 1e-300, 1e300}) {
    for (const CostUnit unit : {CostUnit::kSecond, CostUnit::kFlop}) {
      GraphBuilder builder("extreme", unit);
      builder.add_simple_op("a", "a", Phase::kForward, {}, 1, TensorKind::kOutput, cost);
      const Graph graph = std::move(builder).build().value();
      const Json document = trace_of(graph, {.steps = {Step::compute(OpId(0))}});
      EXPECT_EQ(spans(document, 1).size(), 1u) << cost;
    }
  }
}

TEST(ChromeTrace, IsEmptyWithoutRecords) {
  const Json document = trace_of(small_graph(CostUnit::kSecond), swap_plan(), /*record=*/false);
  EXPECT_TRUE(events(document, "X").empty());
  EXPECT_TRUE(events(document, "C").empty());
}

}  // namespace
}  // namespace regen
