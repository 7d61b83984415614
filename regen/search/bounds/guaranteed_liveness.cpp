#include "regen/search/bounds/guaranteed_liveness.h"

#include <algorithm>
#include <limits>

#include "regen/graph/analysis.h"

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

void GuaranteedLiveness::add_bytes_beside(std::vector<double> spare_bytes) {
  bytes_ = std::move(spare_bytes);
  for (OpId op : graph_.ops()) {
    bytes_[op.index()] +=
        static_cast<double>(graph_.fixed_bytes() + own_bytes(graph_, op) + read_bytes(graph_, op));
  }
}

LivenessInOrder::LivenessInOrder(const Graph& graph)
    : GuaranteedLiveness(graph), ranges_(graph.num_tensors()), cost_before_{0} {
  find_ranges();
  add_bytes_beside(shares(std::vector<double>(graph.num_ops(), 1)));
  for (OpId op : graph.ops()) cost_before_.push_back(cost_before_.back() + cheapest_run(graph, op));
}

void LivenessInOrder::find_ranges() {
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

bool LivenessInOrder::read_while_live(OpId op, TensorId t) const {
  return ranges_[t].first < ranges_[t].last && reads_always(graph_, op, t);
}

std::vector<TensorId> LivenessInOrder::spare(OpId op) const {
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
std::vector<double> LivenessInOrder::shares(std::span<const double> of_makers) const {
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

LivenessInEveryOrder::LivenessInEveryOrder(const Graph& graph) : GuaranteedLiveness(graph) {
  find_ancestors();
  find_spare();
  add_bytes_beside(shares(std::vector<double>(graph.num_ops(), 1)));
  add_up_costs();
}

void LivenessInEveryOrder::find_ancestors() {
  const OpGraph order = ordering_graph(graph_);
  ancestors_.assign(graph_.num_ops(), Ops(graph_.num_ops(), false));
  for (OpId op : graph_.ops()) {
    Ops& above = ancestors_[op.index()];
    for (OpId before : order.predecessors[op]) {
      const Ops& higher = ancestors_[before.index()];
      for (std::size_t i = 0; i < before.index(); ++i) above[i] = above[i] || higher[i];
      above[before.index()] = true;
    }
  }
}

// A value is needed after an op if some op that always reads it comes after that one.
void LivenessInEveryOrder::find_spare() {
  spare_.resize(graph_.num_ops());
  for (TensorId t : graph_.tensors()) {
    if (graph_.fixed(t) || !made_always(graph_, t)) continue;
    const std::size_t maker = graph_.producer(t).index();
    Ops wanted_after(graph_.num_ops(), graph_.kind(t) == TensorKind::kOutput);
    for (OpId reader : graph_.consumers(t)) {
      if (!reads_always(graph_, reader, t)) continue;
      const Ops& above = ancestors_[reader.index()];
      for (std::size_t i = 0; i < reader.index(); ++i)
        wanted_after[i] = wanted_after[i] || above[i];
    }
    for (OpId reader : graph_.consumers(t)) {
      if (reads_always(graph_, reader, t)) wanted_after[reader.index()] = false;  // read, not spare
    }
    for (std::size_t op = maker + 1; op < graph_.num_ops(); ++op) {
      if (wanted_after[op] && ancestors_[op][maker]) spare_[op].push_back(t);
    }
  }
}

void LivenessInEveryOrder::add_up_costs() {
  const std::size_t n = graph_.num_ops();
  std::vector<double> cost;
  double all = 0;
  for (OpId op : graph_.ops()) all += cost.emplace_back(cheapest_run(graph_, op));
  cost_before_.assign(n, all);  // less the op itself and what must come after it
  cost_from_.assign(n, all);    // less what must come before it
  for (std::size_t op = 0; op < n; ++op) {
    cost_before_[op] -= cost[op];
    for (std::size_t above = 0; above < op; ++above) {
      if (!ancestors_[op][above]) continue;
      cost_from_[op] -= cost[above];
      cost_before_[above] -= cost[op];
    }
  }
}

std::vector<double> LivenessInEveryOrder::shares(std::span<const double> of_makers) const {
  std::vector<double> sums(graph_.num_ops(), 0);
  for (OpId op : graph_.ops()) {
    for (TensorId t : spare_[op.index()]) sums[op.index()] += fraction_of(graph_, t, of_makers);
  }
  return sums;
}

bool LivenessInEveryOrder::reads_last(OpId op, TensorId t) const {
  return std::ranges::all_of(graph_.consumers(t), [&](OpId reader) {
    return reader == op || ancestors_[op.index()][reader.index()];
  });
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
