// Planning and packing a graph of 10,000 ops, on one thread.
#include <benchmark/benchmark.h>

#include "regen/base/random.h"
#include "regen/graph/builder.h"
#include "regen/plan/addresses.h"
#include "regen/published/planner_list.h"
#include "regen/search/judge.h"

namespace regen {
namespace {

// A residual network of `layers` forward ops with varied sizes and costs, a skip every four ops,
// and one gradient op for each: 2 * layers + 1 ops.
Graph residual_graph(std::size_t layers) {
  Random random(1);
  GraphBuilder builder("residual");
  std::vector<TensorId> value(2 * layers + 1);
  std::vector<Bytes> bytes;
  const auto inputs_of = [](std::size_t i) {
    std::vector<std::size_t> inputs;
    if (i > 0) inputs.push_back(i - 1);
    if (i >= 4 && i % 4 == 0) inputs.push_back(i - 4);
    return inputs;
  };
  std::vector<std::vector<std::size_t>> readers(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    std::vector<TensorId> inputs;
    for (std::size_t j : inputs_of(i)) {
      inputs.push_back(value[j]);
      readers[j].push_back(i);
    }
    bytes.push_back(random.between(1, 64) << 16);
    value[i] = builder.add_simple_op("f" + std::to_string(i), "conv", Phase::kForward, inputs,
                                     bytes[i], TensorKind::kActivation,
                                     static_cast<double>(random.between(1, 1000)));
  }
  value[layers] = builder.add_simple_op("loss", "loss", Phase::kLoss, {value[layers - 1]}, 4,
                                        TensorKind::kActivation, 0);
  for (std::size_t i = layers; i-- > 0;) {
    std::vector<TensorId> inputs{value[i]};
    for (std::size_t j : readers[i]) inputs.push_back(value[j]);
    for (std::size_t j : readers[i]) inputs.push_back(value[2 * layers - j]);
    if (i + 1 == layers) inputs.push_back(value[layers]);
    value[2 * layers - i] = builder.add_simple_op(
        "b" + std::to_string(i), "conv_backward", Phase::kBackward, inputs, bytes[i],
        TensorKind::kGradient, static_cast<double>(random.between(1, 1000)));
  }
  return std::move(builder).build().value();
}

const Graph& large_graph() {
  static const Graph graph = residual_graph(5000);
  return graph;
}

void plan_with(benchmark::State& state, const char* planner) {
  double overhead = 0;
  for (auto _ : state) {
    const auto outcome =
        search::solve(*published::every_planner().find(planner).value(), {.graph = &large_graph()});
    overhead = outcome->simulation.overhead;
  }
  state.counters["ops"] = static_cast<double>(large_graph().num_ops());
  state.counters["overhead"] = overhead;
}

void BM_KeepAll(benchmark::State& state) {
  plan_with(state, "keep_all");
}
void BM_ChenSqrt(benchmark::State& state) {
  plan_with(state, "chen_sqrt");
}
void BM_ChenGreedy(benchmark::State& state) {
  plan_with(state, "chen_greedy");
}
void BM_Griewank(benchmark::State& state) {
  plan_with(state, "griewank");
}
BENCHMARK(BM_KeepAll)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ChenSqrt)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ChenGreedy)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Griewank)->Unit(benchmark::kMillisecond)->Iterations(1);

void pack_plan_of(benchmark::State& state, const char* planner) {
  const Plan plan =
      *search::solve(*published::every_planner().find(planner).value(), {.graph = &large_graph()})
           .value()
           .plan;
  double ratio = 0;
  for (auto _ : state) {
    const auto addressed = with_addresses(large_graph(), plan);
    ratio = addressed->packing.ratio();
  }
  state.counters["allocations"] =
      static_cast<double>(allocation_lifetimes(large_graph(), plan).size());
  state.counters["packed/live"] = ratio;
}

void BM_PackKeepAll(benchmark::State& state) {
  pack_plan_of(state, "keep_all");
}
void BM_PackChenSqrt(benchmark::State& state) {
  pack_plan_of(state, "chen_sqrt");
}
void BM_PackChenGreedy(benchmark::State& state) {
  pack_plan_of(state, "chen_greedy");
}
BENCHMARK(BM_PackKeepAll)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PackChenSqrt)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_PackChenGreedy)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace regen
