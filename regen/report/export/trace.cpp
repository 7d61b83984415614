#include "regen/report/export/trace.h"

#include <array>
#include <utility>
#include <vector>

#include "regen/plan/addresses.h"
#include "regen/report/boxes.h"
#include "regen/report/category.h"
#include "regen/report/label.h"
#include "regen/report/modules.h"
#include "regen/simulate/simulate.h"
#include "regen/simulate/trace.h"

namespace regen::report {
namespace {

// Of each category and of workspaces, the bytes in each step.
std::vector<TraceSeries> bytes_by_category(const Graph& graph, const Plan& plan) {
  const IdVector<TensorId, Category> found = categories(graph);
  std::vector<TraceSeries> series(kNumCategories + 1);
  for (std::size_t i = 0; i < kNumCategories; ++i) {
    series[i].name = to_string(static_cast<Category>(i));
  }
  series.back().name = "workspace";
  for (TraceSeries& one : series) one.bytes.assign(plan.steps.size() + 1, 0);
  const auto add = [&](std::size_t row, std::size_t from, std::size_t to, Bytes bytes) {
    series[row].bytes[from] += bytes;
    series[row].bytes[to] -= bytes;
  };
  for (const TensorId t : graph.tensors()) {
    if (graph.fixed(t)) {
      add(static_cast<std::size_t>(found[t]), 0, plan.steps.size(), graph.bytes(t));
    }
  }
  const std::vector<Bytes> nowhere(allocation_lifetimes(graph, plan).size(), 0);
  for (const Box& box : boxes(graph, plan, nowhere)) {
    const std::size_t row =
        box.tensor.valid() ? static_cast<std::size_t>(found[box.tensor]) : kNumCategories;
    add(row, box.from, box.to, box.bytes);
  }
  for (TraceSeries& one : series) {
    for (std::size_t i = 1; i < one.bytes.size(); ++i) one.bytes[i] += one.bytes[i - 1];
  }
  return series;
}

}  // namespace

Result<std::string> perfetto_trace(const Graph& graph, const Plan& plan, const Link& link) {
  REGEN_ASSIGN(const Simulation simulation, simulate(graph, plan, {.link = link, .record = true}));
  const ModuleTree tree = module_tree(graph);
  TraceOptions options;
  for (const OpId op : graph.ops()) {
    options.modules.push_back(label(tree.paths[tree.of_op[op]]));
  }
  options.series = bytes_by_category(graph, plan);
  return chrome_trace(graph, plan, simulation, options);
}

}  // namespace regen::report
