#include "regen/search/bounds/guaranteed_liveness.h"

#include <algorithm>
#include <limits>

namespace regen::search {
namespace {

// What an op takes beyond what it reads, in the variant that takes least.
Bytes own_bytes(const Graph& graph, OpId op) {
  Bytes least = std::numeric_limits<Bytes>::max();
  for (VariantId v : graph.variants(op)) {
    Bytes sum = graph.workspace(v);
    for (TensorId t : graph.makes(v).subspan(graph.overwrites(v).valid() ? 1 : 0)) {
      sum += graph.bytes(t);
    }
    least = std::min(least, sum);
  }
  return least;
}

bool made_always(const Graph& graph, TensorId t) {
  const auto outputs = graph.outputs(graph.producer(t));
  return std::ranges::find(outputs, t) != outputs.end();
}

// Bytes of what the op reads in all its variants.
Bytes read_bytes(const Graph& graph, OpId op) {
  Bytes sum = 0;
  for (TensorId t : graph.inputs(op)) {
    if (!graph.fixed(t) && reads_always(graph, op, t)) sum += graph.bytes(t);
  }
  return sum;
}

double fraction_of(const Graph& graph, TensorId t, std::span<const double> of_makers) {
  return static_cast<double>(graph.bytes(t)) * of_makers[graph.producer(t).index()];
}

}  // namespace

GuaranteedLiveness::GuaranteedLiveness(const Graph& graph)
    : graph_(graph), ranges_(graph.num_tensors()), cost_before_{0} {
  find_ranges();
  bytes_ = spare_bytes(std::vector<double>(graph.num_ops(), 1));
  for (OpId op : graph.ops()) {
    bytes_[op.index()] +=
        static_cast<double>(graph.fixed_bytes() + own_bytes(graph, op) + read_bytes(graph, op));
    cost_before_.push_back(cost_before_.back() + cheapest_run(graph, op));
  }
}

void GuaranteedLiveness::find_ranges() {
  for (OpId op : graph_.ops()) {
    for (TensorId t : graph_.inputs(op)) {
      if (reads_always(graph_, op, t)) ranges_[t].last = op.index() + 1;
    }
  }
  for (TensorId t : graph_.tensors()) {
    Range& range = ranges_[t];
    if (graph_.kind(t) == TensorKind::kOutput) range.last = graph_.num_ops();
    if (!graph_.fixed(t)) range.first = graph_.producer(t).index() + 1;
    if (graph_.fixed(t) || !made_always(graph_, t) || range.last < range.first) range = {};
  }
}

bool GuaranteedLiveness::read_while_live(OpId op, TensorId t) const {
  return ranges_[t].first < ranges_[t].last && reads_always(graph_, op, t);
}

std::vector<TensorId> GuaranteedLiveness::spare(OpId op) const {
  std::vector<TensorId> values;
  for (TensorId t : graph_.tensors()) {
    const bool live = ranges_[t].first <= op.index() && op.index() < ranges_[t].last;
    if (!live) continue;
    const auto inputs = graph_.inputs(op);
    const bool read = std::ranges::find(inputs, t) != inputs.end() && reads_always(graph_, op, t);
    if (!read) values.push_back(t);
  }
  return values;
}

// Sums over ranges, as there may be very many spare values at each of very many ops.
std::vector<double> GuaranteedLiveness::spare_bytes(std::span<const double> of_makers) const {
  std::vector<double> change(graph_.num_ops() + 1, 0);
  for (TensorId t : graph_.tensors()) {
    if (ranges_[t].first == ranges_[t].last) continue;
    change[ranges_[t].first] += fraction_of(graph_, t, of_makers);
    change[ranges_[t].last] -= fraction_of(graph_, t, of_makers);
  }
  std::vector<double> sums(graph_.num_ops(), 0);
  double sum = 0;
  for (OpId op : graph_.ops()) {
    sums[op.index()] = sum += change[op.index()];
    for (TensorId t : graph_.inputs(op)) {
      if (read_while_live(op, t)) sums[op.index()] -= fraction_of(graph_, t, of_makers);
    }
  }
  return sums;
}

bool reads_always(const Graph& graph, OpId op, TensorId t) {
  return std::ranges::all_of(graph.variants(op), [&](VariantId v) {
    return std::ranges::find(graph.reads(v), t) != graph.reads(v).end();
  });
}

double cheapest_run(const Graph& graph, OpId op) {
  double least = std::numeric_limits<double>::infinity();
  for (VariantId v : graph.variants(op)) least = std::min(least, graph.cost(v));
  return least;
}

double cheapest_rerun(const Graph& graph, OpId op) {
  double least = std::numeric_limits<double>::infinity();
  for (VariantId v : graph.variants(op)) least = std::min(least, graph.rerun_cost(v));
  return least;
}

}  // namespace regen::search
