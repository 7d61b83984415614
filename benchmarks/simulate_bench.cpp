// How fast the judge judges: steps per second on one thread.
#include <benchmark/benchmark.h>

#include "regen/models/zoo.h"
#include "regen/plan/addresses.h"
#include "regen/plan/validate.h"
#include "regen/published/planner_list.h"
#include "regen/search/judge.h"
#include "regen/simulate/simulate.h"

namespace regen {
namespace {

// A chain of 5,000 layers: 10,001 ops with their backward pass.
const Graph& large_graph() {
  static const Graph graph = zoo_graph("chain:5000").value();
  return graph;
}

const Plan& large_plan() {
  static const Plan plan = [] {
    return *search::solve(*published::every_planner().find("chen_sqrt").value(),
                          {.graph = &large_graph()})
                .value()
                .plan;
  }();
  return plan;
}

void count_steps(benchmark::State& state, const Plan& plan) {
  state.counters["steps"] = static_cast<double>(plan.steps.size());
  state.counters["steps/s"] = benchmark::Counter(
      static_cast<double>(plan.steps.size()) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void BM_Simulate(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(simulate(large_graph(), large_plan()));
  count_steps(state, large_plan());
}
BENCHMARK(BM_Simulate)->Unit(benchmark::kMillisecond);

// ResNet-50 has several readers for each tensor.
void BM_SimulateResNet50(benchmark::State& state) {
  const Graph graph = zoo_graph("ResNet50").value();
  const Plan plan =
      *search::solve(*published::every_planner().find("chen_sqrt").value(), {.graph = &graph})
           .value()
           .plan;
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan));
  count_steps(state, plan);
}
BENCHMARK(BM_SimulateResNet50)->Unit(benchmark::kMillisecond);

// Every second forward value is moved out and back.
void BM_SimulateWithCopies(benchmark::State& state) {
  const Graph& graph = large_graph();
  Plan plan;
  for (OpId op : graph.ops()) {
    const std::size_t i = op.index();
    const std::size_t n = graph.num_ops() / 2;
    if (i > n && (2 * n - i) % 2 == 0) plan.steps.push_back(Step::fetch(TensorId(2 * n - i)));
    plan.steps.push_back(Step::compute(op));
    if (i > 0 && i < n && (i - 1) % 2 == 0) {
      plan.steps.push_back(Step::offload(TensorId(i - 1)));
      plan.steps.push_back(Step::release(TensorId(i - 1)));
    }
  }
  const SimulateOptions options{.link = {.to_host = 2, .to_device = 2, .both = 3}};
  const auto check = simulate(graph, plan, options);
  if (!check.ok()) {
    state.SkipWithError(check.error().message.c_str());
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(simulate(graph, plan, options));
  count_steps(state, plan);
}
BENCHMARK(BM_SimulateWithCopies)->Unit(benchmark::kMillisecond);

void BM_Validate(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(validate(large_graph(), large_plan()));
  count_steps(state, large_plan());
}
BENCHMARK(BM_Validate)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace regen
