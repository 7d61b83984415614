// Plans from anywhere: no text crashes the reader or a judge, and what the validator accepts the
// simulator accepts with the same peaks. The first byte picks a graph, and '0' to '2' say that
// the plan follows as JSON; otherwise each pair of bytes is one step, which finds valid plans
// much faster.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "regen/graph/builder.h"
#include "regen/plan/explain.h"
#include "regen/plan/plan_json.h"
#include "regen/plan/validate.h"
#include "regen/simulate/simulate.h"

namespace {

using namespace regen;

void require(bool holds) {
  if (!holds) std::abort();
}

Graph chain() {
  GraphBuilder builder("chain");
  TensorId last = builder.add_tensor({.name = "x", .bytes = 3, .kind = TensorKind::kInput});
  for (Bytes bytes : {40, 0, 20}) {
    last =
        builder.add_simple_op("op", "", Phase::kForward, {last}, bytes, TensorKind::kActivation, 2);
  }
  return std::move(builder).build().value();
}

// In-place runs, a mask, a workspace, two outputs of an op.
Graph variants() {
  GraphBuilder builder("variants");
  const TensorId a =
      builder.add_simple_op("a", "", Phase::kForward, {}, 40, TensorKind::kActivation, 1);
  const TensorId b = builder.add_tensor({.name = "b", .bytes = 30});
  const TensorId mask = builder.add_tensor({.name = "mask", .bytes = 4});
  const TensorId c = builder.add_tensor({.name = "c", .bytes = 10, .kind = TensorKind::kOutput});
  const TensorId d = builder.add_tensor({.name = "d", .bytes = 7});
  builder.add_op({.name = "b",
                  .inputs = {a},
                  .outputs = {b},
                  .variants = {{.cost = 1, .rerun_cost = 3},
                               {.workspace = 9, .overwrites = a},
                               {.extra_outputs = {mask}}}});
  builder.add_op({.name = "c",
                  .inputs = {a, b},
                  .outputs = {c, d},
                  .variants = {{.cost = 2}, {.cost = 5, .reads = std::vector{mask}}}});
  return std::move(builder).build().value();
}

// An update with readers on both sides, an op that runs once, a view.
Graph update() {
  GraphBuilder builder("update");
  const TensorId w = builder.add_tensor({.name = "w", .bytes = 8, .kind = TensorKind::kParam});
  const TensorId a =
      builder.add_simple_op("a", "", Phase::kForward, {w}, 6, TensorKind::kActivation, 1);
  const TensorId g = builder.add_tensor({.name = "g", .bytes = 5, .kind = TensorKind::kGradient});
  builder.add_op({.name = "g", .inputs = {a}, .outputs = {g}, .recomputable = false});
  builder.add_op({.name = "view", .inputs = {a}});
  builder.add_op({.name = "step", .inputs = {g}, .mutates = {w}});
  builder.add_simple_op("norm", "", Phase::kUpdate, {w}, 1, TensorKind::kOutput, 1);
  return std::move(builder).build().value();
}

Plan decode(std::string_view bytes) {
  Plan plan;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    const auto kind = static_cast<unsigned char>(bytes[i]);
    const auto id = static_cast<unsigned char>(bytes[i + 1]);
    const std::array<Step, 4> steps{Step::compute(OpId(id), kind / 4u), Step::offload(TensorId(id)),
                                    Step::release(TensorId(id)), Step::fetch(TensorId(id))};
    plan.steps.push_back(steps[kind % 4u]);
  }
  return plan;
}

void judge(const Graph& graph, const Plan& plan) {
  const Link link{.to_host = 3, .to_device = 5, .both = 6};
  const auto simulation = simulate(graph, plan, {.link = link, .record = true});
  const auto validation = validate(graph, plan);
  if (!validation.ok()) return;
  require(simulation.ok());
  require(simulation->peak_bytes == validation->peak_bytes);
  require(simulation->activation_peak_bytes == validation->activation_peak_bytes);
  require(simulation->host_peak_bytes == validation->host_peak_bytes);
  require(validate(graph, plan, {validation->peak_bytes, validation->host_peak_bytes}).ok());

  const Explanation explanation = explain(graph, plan);
  Bytes sum = explanation.fixed_bytes + explanation.workspace_bytes + explanation.unused_bytes;
  for (const LiveTensor& item : explanation.live) sum += item.bytes;
  require(sum == validation->peak_bytes);
  require(explanation.unused_bytes >= 0);
  require(structural_bound(graph).bytes <= validation->peak_bytes);
  require(!to_text(graph, plan, explanation).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::array<Graph, 3> graphs{chain(), variants(), update()};
  if (size == 0) return 0;
  const Graph& graph = graphs[data[0] % graphs.size()];
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool json = data[0] >= '0' && data[0] <= '2';
  if (!json) {
    judge(graph, decode(rest));
    return 0;
  }
  const auto plan = parse_plan(rest, "fuzz");
  if (!plan.ok()) return 0;
  const auto again = parse_plan(write_plan(*plan), "again");
  require(again.ok() && *again == *plan);
  judge(graph, *plan);
  return 0;
}
