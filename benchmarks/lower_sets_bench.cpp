// The planners over lower sets on the seven published graphs (../shared/reference/data, or
// $REGEN_REFERENCE_DATA): the published dynamic program and the default model, exact and
// approximate, at the least budget, half-way and without a limit.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <map>
#include <string>

#include "regen/base/file.h"
#include "regen/published/graph_formats.h"
#include "regen/published/lower_sets/lower_set_published.h"
#include "regen/published/options.h"
#include "regen/published/planner_list.h"
#include "regen/search/judge.h"

namespace regen {
namespace {

constexpr std::array<const char*, 7> kGraphs{"vgg19",  "unet",      "googlenet", "resnet50",
                                             "pspnet", "resnet152", "densenet"};

const Graph* published_graph(std::size_t index) {
  static std::map<std::size_t, Graph> graphs;
  const char* folder = std::getenv("REGEN_REFERENCE_DATA");
  const std::string path = std::string(folder ? folder : "../shared/reference/data") +
                           "/computational_graphs/cg_" + kGraphs[index] + ".txt";
  if (!graphs.contains(index)) {
    const auto text = read_file(path);
    if (!text.ok()) return nullptr;
    graphs.emplace(index, published::read_graph(*text, path).value());
  }
  return &graphs.at(index);
}

// From the least budget (0) to one that is no limit (100).
Bytes between(Bytes least, Bytes most, std::int64_t percent) {
  return least +
         static_cast<Bytes>(static_cast<double>(most - least) * static_cast<double>(percent) / 100);
}

void published(benchmark::State& state, bool whole) {
  const Graph* graph = published_graph(static_cast<std::size_t>(state.range(0)));
  if (graph == nullptr) return state.SkipWithError("no reference data");
  state.SetLabel(kGraphs[static_cast<std::size_t>(state.range(0))]);
  const published::LowerSetNodes nodes = published::lower_set_nodes(*graph, /*with_loss=*/true);
  Effort effort;
  const auto make = [&] {
    return whole ? *published::LowerSetFamily::all(nodes, 1'000'000, std::size_t{1} << 30, effort)
                 : published::LowerSetFamily::pruned(nodes);
  };
  const published::LowerSetFamily first = make();
  const Bytes least = published::smallest_published_budget(nodes, first, effort).value();
  const Bytes budget = between(least, 2 * first.bytes(first.size() - 1), state.range(1));
  for (auto _ : state) {
    const published::LowerSetFamily family = make();
    const auto answer =
        published::solve_published(nodes, family, budget, published::Preference::kTime, effort);
    state.counters["overhead"] = answer.strategy->overhead;
  }
  state.counters["sets"] = static_cast<double>(first.size());
  state.counters["budget_MB"] = static_cast<double>(budget) / 1e6;
}

void by_default(benchmark::State& state, const char* planner) {
  const search::Planner& entry = *published::every_planner().find(planner).value();
  const Graph* graph = published_graph(static_cast<std::size_t>(state.range(0)));
  if (graph == nullptr) return state.SkipWithError("no reference data");
  state.SetLabel(kGraphs[static_cast<std::size_t>(state.range(0))]);
  const search::Outcome lean =
      search::solve(
          entry,
          {.graph = graph,
           .options = {.extra = published::Options{.prefer = published::Preference::kMemory}}})
          .value();
  const search::Outcome keep =
      search::solve(search::own_planner("keep_all"), {.graph = graph}).value();
  const Bytes budget =
      between(lean.simulation.peak_bytes, keep.simulation.peak_bytes, state.range(1));
  for (auto _ : state) {
    const search::Outcome outcome =
        search::solve(entry, {.graph = graph, .budget = budget}).value();
    state.counters["overhead"] = outcome.simulation.cost - outcome.base_cost;
    state.counters["optimal"] = outcome.status == search::PlanStatus::kOptimal ? 1 : 0;
  }
  state.counters["activations_MB"] = static_cast<double>(budget - graph->fixed_bytes()) / 1e6;
}

void BM_LowerSetsPublished(benchmark::State& state) {
  published(state, true);
}
void BM_LowerSetsPublishedApprox(benchmark::State& state) {
  published(state, false);
}
void BM_LowerSets(benchmark::State& state) {
  by_default(state, "lower_sets");
}
void BM_LowerSetsApprox(benchmark::State& state) {
  by_default(state, "lower_sets_approx");
}

void every_graph(benchmark::internal::Benchmark* bench) {
  for (std::int64_t graph = 0; graph < static_cast<std::int64_t>(kGraphs.size()); ++graph) {
    for (std::int64_t percent : {0, 50, 100}) bench->Args({graph, percent});
  }
  bench->Unit(benchmark::kMillisecond)->Iterations(1);
}
BENCHMARK(BM_LowerSetsPublished)->Apply(every_graph);
BENCHMARK(BM_LowerSetsPublishedApprox)->Apply(every_graph);
BENCHMARK(BM_LowerSets)->Apply(every_graph);
BENCHMARK(BM_LowerSetsApprox)->Apply(every_graph);

}  // namespace
}  // namespace regen
