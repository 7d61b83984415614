// How fast lifetimes are packed, and how close to the highest load: MiniMalloc's instances into
// their capacity, and made-up training steps to the lowest height.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "regen/base/file.h"
#include "regen/base/random.h"
#include "regen/plan/pack/lifetimes_csv.h"
#include "regen/plan/pack/pack.h"

namespace regen {
namespace {

// From REGEN_REFERENCE_DATA, or shared/reference/data beside the repository.
std::string reference_path(const std::string& name) {
  if (const char* folder = std::getenv("REGEN_REFERENCE_DATA"))
    return std::string(folder) + "/" + name;
  const auto repository = std::filesystem::absolute(__FILE__).parent_path().parent_path();
  return (repository.parent_path() / "shared/reference/data" / name).string();
}

void report(benchmark::State& state, const Packing& packing) {
  state.counters["items"] = static_cast<double>(packing.offsets.size());
  state.counters["ratio"] = packing.ratio();
  state.counters["work"] = static_cast<double>(packing.work);
}

void BM_MiniMalloc(benchmark::State& state) {
  constexpr Bytes kCapacity = Bytes{1} << 20;
  const std::string name(1, static_cast<char>('A' + state.range(0)));
  const std::string path = reference_path("minimalloc/" + name + ".1048576.csv");
  const auto text = read_file(path);
  if (!text.ok()) return state.SkipWithError(text.error().message.c_str());
  const auto table = parse_lifetimes_csv(*text, path);
  if (!table.ok()) return state.SkipWithError(table.error().message.c_str());
  state.SetLabel(name);
  for (auto _ : state) {
    const auto packing = pack(table->lifetimes, {.capacity = kCapacity});
    if (packing->status != PackStatus::kPacked) return state.SkipWithError("not packed");
    report(state, *packing);
  }
}
BENCHMARK(BM_MiniMalloc)->DenseRange(0, 4)->Unit(benchmark::kMillisecond);

// A network of layers whose training step runs ops 0 .. 2 * layers - 1, the second half backward.
struct Step {
  int layers = 0;
  bool even_sizes = false;  // a handful of sizes, or any
  Random random{1};
  std::vector<Lifetime> lifetimes = {};

  std::int64_t backward(int layer) const { return 2 * layers - 1 - layer; }
  void live(std::int64_t lower, std::int64_t upper, Bytes size) {
    lifetimes.push_back({.lower = lower, .upper = upper, .size = size});
  }
  // Of activations: large at first, halved now and then as the network narrows.
  Bytes activation(int layer) {
    constexpr Bytes kLargest = Bytes{64} << 20;
    const Bytes size = kLargest >> (4 * layer / layers);
    return even_sizes ? size : random.between(size / 8, size);
  }
  Bytes workspace() {
    constexpr Bytes kLargest = Bytes{128} << 20;
    return even_sizes ? kLargest >> random.between(1, 8) : random.between(1 << 10, kLargest);
  }
  Bytes parameter() {
    constexpr Bytes kLargest = Bytes{8} << 20;
    return even_sizes ? kLargest >> random.between(0, 6) : random.between(256, kLargest);
  }
};

void add_workspaces(Step& step) {
  for (int op = 0; op < 2 * step.layers; ++op) step.live(op, op + 1, step.workspace());
}

// Gradients of activations live until the next op, those of parameters until the end.
void add_gradients(Step& step) {
  for (int layer = 0; layer < step.layers; ++layer) {
    const std::int64_t op = step.backward(layer);
    step.live(op, std::min<std::int64_t>(op + 2, 2 * step.layers), step.activation(layer));
    step.live(op, 2 * step.layers, step.parameter());
  }
}

// Every activation waits for its backward op.
std::vector<Lifetime> chain(int layers, bool even_sizes) {
  Step step{.layers = layers, .even_sizes = even_sizes};
  for (int layer = 0; layer < layers; ++layer) {
    step.live(layer, step.backward(layer) + 1, step.activation(layer));
  }
  add_gradients(step);
  add_workspaces(step);
  return step.lifetimes;
}

// Blocks of four layers with a skip connection; only some activations wait, with a small mask
// each, the others die at once; the gradient of the skip lives through its block.
std::vector<Lifetime> residual(int layers, bool even_sizes) {
  constexpr int kBlock = 4;
  Step step{.layers = layers, .even_sizes = even_sizes};
  for (int layer = 0; layer < layers; ++layer) {
    const bool waits = layer % kBlock != 1;
    const std::int64_t upper = waits ? step.backward(layer) + 1 : layer + 2;
    step.live(layer, upper, step.activation(layer));
    if (!waits) step.live(layer, step.backward(layer) + 1, step.activation(layer) / 16 + 1);
    if (layer % kBlock != kBlock - 1) continue;
    const std::int64_t op = step.backward(layer);
    step.live(op, std::min<std::int64_t>(op + kBlock + 1, 2 * layers), step.activation(layer));
  }
  add_gradients(step);
  add_workspaces(step);
  return step.lifetimes;
}

// Segments of about the square root of the layers: only their ends wait, the rest is computed
// again just before it is needed.
std::vector<Lifetime> recomputed(int layers, bool even_sizes) {
  Step step{.layers = layers, .even_sizes = even_sizes};
  int segment = 1;
  while (segment * segment < layers) ++segment;
  const int rounded = layers / segment * segment;
  std::vector<std::int64_t> again(static_cast<std::size_t>(rounded));
  std::vector<std::int64_t> back(static_cast<std::size_t>(rounded));
  std::int64_t now = rounded;
  for (int first = rounded - segment; first >= 0; first -= segment) {
    for (int layer = first; layer < first + segment; ++layer)
      again[static_cast<std::size_t>(layer)] = now++;
    for (int layer = first + segment - 1; layer >= first; --layer)
      back[static_cast<std::size_t>(layer)] = now++;
  }
  for (int layer = 0; layer < rounded; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    const Bytes size = step.activation(layer);
    const bool kept = layer % segment == segment - 1;
    step.live(layer, kept ? back[i] + 1 : layer + 2, size);
    if (!kept) step.live(again[i], back[i] + 1, size);
    step.live(back[i], std::min(back[i] + 2, now), step.activation(layer));
    step.live(back[i], now, step.parameter());
  }
  for (std::int64_t op = 0; op < now; ++op) step.live(op, op + 1, step.workspace());
  return step.lifetimes;
}

using Maker = std::vector<Lifetime> (*)(int, bool);

void pack_step(benchmark::State& state, Maker make) {
  const auto lifetimes = make(static_cast<int>(state.range(0)), state.range(1) != 0);
  for (auto _ : state) report(state, pack(lifetimes).value());
}

void step_sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"layers", "even"})->ArgsProduct({{50, 500, 5000}, {0, 1}});
  bench->Unit(benchmark::kMillisecond);
}
BENCHMARK_CAPTURE(pack_step, chain, chain)->Apply(step_sizes);
BENCHMARK_CAPTURE(pack_step, residual, residual)->Apply(step_sizes);
BENCHMARK_CAPTURE(pack_step, recomputed, recomputed)->Apply(step_sizes);

}  // namespace
}  // namespace regen
