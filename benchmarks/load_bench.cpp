// How long graph files take to read and write: 10,000 ops, 20,001 tensors and about 80,000 edges.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <string>
#include <vector>

#include "regen/base/random.h"
#include "regen/graph/builder.h"
#include "regen/published/graph_formats.h"

namespace regen {
namespace {

// Each op reads a parameter of its own and up to eight of the last fifty values.
Graph layered_graph(std::size_t num_ops) {
  Random random(1);
  GraphBuilder builder("layers");
  std::vector<TensorId> values{
      builder.add_tensor({.name = "x", .bytes = 1000, .kind = TensorKind::kInput})};
  for (std::size_t i = 0; i < num_ops; ++i) {
    const std::string name = "layer" + std::to_string(i);
    OpSpec op{.name = name, .type = "conv2d"};
    op.inputs.push_back(
        builder.add_tensor({.name = name + "/W", .bytes = 4096, .kind = TensorKind::kParam}));
    const std::size_t reach = std::min<std::size_t>(values.size(), 50);
    for (int k = 0; k < 8; ++k) {
      op.inputs.push_back(values[values.size() - 1 - random.next() % reach]);
    }
    values.push_back(builder.add_tensor({.name = name, .bytes = random.between(0, 1 << 30)}));
    op.outputs = {values.back()};
    op.variants = {{.cost = random.real() * 1e9, .workspace = 1024}};
    builder.add_op(std::move(op));
  }
  return *std::move(builder).build();
}

void BM_ReadGraph(benchmark::State& state, published::GraphFormat format) {
  const auto text =
      published::write_graph(layered_graph(static_cast<std::size_t>(state.range(0))), format);
  for (auto _ : state) {
    auto graph = published::read_graph(*text, "bench");
    if (!graph.ok()) return state.SkipWithError(graph.error().message.c_str());
    benchmark::DoNotOptimize(graph);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text->size()));
}
BENCHMARK_CAPTURE(BM_ReadGraph, regen, published::GraphFormat::kRegen)
    ->Arg(1000)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_ReadGraph, lower_sets, published::GraphFormat::kLowerSets)
    ->Arg(10'000)
    ->Unit(benchmark::kMillisecond);

void BM_WriteGraph(benchmark::State& state, published::GraphFormat format) {
  const Graph graph = layered_graph(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) {
    auto text = published::write_graph(graph, format);
    if (!text.ok()) return state.SkipWithError(text.error().message.c_str());
    benchmark::DoNotOptimize(text);
  }
}
BENCHMARK_CAPTURE(BM_WriteGraph, regen, published::GraphFormat::kRegen)
    ->Arg(10'000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_WriteGraph, dot, published::GraphFormat::kDot)
    ->Arg(10'000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace regen
