#include "regen/search/exact/stage_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "regen/search/build/sequence.h"

namespace regen {
namespace {

// The planned tensors that base variants make, in the order in which they are made.
IdVector<TensorId, ValueId> number_values(const Graph& graph, Frontier& frontier) {
  IdVector<TensorId, ValueId> value(graph.num_tensors());
  for (OpId op : graph.ops()) {
    for (TensorId t : graph.makes(base_variant(graph, op))) {
      value[t] = frontier.tensor.push_back(t);
      frontier.bytes.push_back(graph.bytes(t));
      frontier.producer.push_back(static_cast<std::uint32_t>(op.index()));
      frontier.output.push_back(graph.kind(t) == TensorKind::kOutput);
    }
  }
  return value;
}

void add_ops(const Graph& graph, const IdVector<TensorId, ValueId>& value, Frontier& frontier) {
  std::vector<std::pair<ValueId, OpId>> readers;
  for (OpId op : graph.ops()) {
    const VariantId v = base_variant(graph, op);
    std::vector<ValueId> row;
    for (TensorId t : graph.reads(v)) {
      if (graph.fixed(t)) continue;
      row.push_back(value[t]);
      readers.emplace_back(value[t], op);
    }
    frontier.reads.append_row(row);
    row.clear();
    for (TensorId t : graph.makes(v)) row.push_back(value[t]);
    frontier.makes.append_row(row);
    frontier.workspace.push_back(graph.workspace(v));
    frontier.first_cost.push_back(graph.cost(v));
    frontier.rerun_cost.push_back(graph.rerun_cost(v));
    frontier.base_cost += graph.cost(v);
    if (graph.variants(op).size() > 1 || graph.overwrites(v).valid()) frontier.exact = false;
  }
  frontier.readers = Csr<ValueId, OpId>::from_pairs(frontier.num_values, readers);
}

// Outputs, and what they are made of: from the last op to the first.
void set_useful_behind(const IdVector<OpId, std::size_t>& changes, Frontier& frontier) {
  frontier.useful_behind = frontier.output;
  frontier.rerun_behind.assign(frontier.num_ops, 0);
  for (std::size_t i = frontier.num_ops; i-- > 0;) {
    const OpId op(i);
    const bool wanted = std::ranges::any_of(
        frontier.makes[op], [&](ValueId v) { return frontier.useful_behind[v] != 0; });
    if (!wanted || !frontier.again[op] || changes[op] != SIZE_MAX) continue;
    frontier.rerun_behind[op] = 1;
    for (ValueId v : frontier.reads[op]) frontier.useful_behind[v] = 1;
  }
}

// From the last op to the first: a value is of use until its readers have run for the last time.
void set_useful_stages(Frontier& frontier) {
  const IdVector<OpId, std::size_t> changes = first_changes(*frontier.graph);
  frontier.useful_until.assign(frontier.num_values, 0);
  frontier.rerun_until.assign(frontier.num_ops, 0);
  for (std::size_t i = frontier.num_ops; i-- > 0;) {
    const OpId op(i);
    std::uint32_t until = 0;
    for (ValueId v : frontier.makes[op]) {
      for (OpId reader : frontier.readers[v]) {
        const auto last =
            std::max(static_cast<std::uint32_t>(reader.index()), frontier.rerun_until[reader]);
        frontier.useful_until[v] = std::max(frontier.useful_until[v], last);
      }
      if (frontier.output[v]) {
        frontier.useful_until[v] = static_cast<std::uint32_t>(frontier.num_ops);
      }
      until = std::max(until, frontier.useful_until[v]);
    }
    until = std::min(until, static_cast<std::uint32_t>(frontier.num_ops - 1));
    // A second run must not read what was changed in between.
    if (changes[op] < until) {
      frontier.repeatable[op] = 0;
      until = static_cast<std::uint32_t>(changes[op]);
    }
    if (frontier.again[op] && until > i) frontier.rerun_until[op] = until;
  }
  set_useful_behind(changes, frontier);
  // A value that an op destroys when it first runs is never carried past that stage.
  for (OpId op : frontier.graph->ops()) {
    const TensorId old = frontier.graph->overwrites(base_variant(*frontier.graph, op));
    if (!old.valid()) continue;
    for (ValueId v : frontier.reads[op]) {
      if (frontier.tensor[v] == old) {
        frontier.useful_until[v] = static_cast<std::uint32_t>(op.index());
        frontier.useful_behind[v] = 0;
      }
    }
  }
}

}  // namespace

Frontier make_frontier(const Graph& graph, bool forward_only) {
  Frontier frontier{.graph = &graph, .num_ops = graph.num_ops()};
  const IdVector<TensorId, ValueId> value = number_values(graph, frontier);
  frontier.num_values = frontier.tensor.size();
  add_ops(graph, value, frontier);
  frontier.repeatable = repeatable_ops(graph, forward_only);
  frontier.again = frontier.repeatable;
  for (OpId op : graph.ops()) {
    const bool in_phase = !forward_only || graph.phase(op) == Phase::kForward;
    const bool overwrites = graph.overwrites(base_variant(graph, op)).valid();
    if (in_phase && !overwrites && graph.recomputable(op)) frontier.again[op] = 1;
  }
  set_useful_stages(frontier);
  frontier.fixed_bytes = graph.fixed_bytes();
  return frontier;
}

Frontier without_dear_reruns(const Frontier& frontier, double most) {
  Frontier result = frontier;
  for (OpId op : frontier.graph->ops()) {
    if (frontier.rerun_cost[op] > most) result.again[op] = result.repeatable[op] = 0;
  }
  set_useful_stages(result);
  return result;
}

double common_cost(const Frontier& frontier) {
  std::int64_t common = 0;
  for (OpId op : frontier.graph->ops()) {
    for (const double cost : {frontier.first_cost[op], frontier.rerun_cost[op]}) {
      if (cost != std::floor(cost) || cost > 9e15) return 0;
      common = std::gcd(common, static_cast<std::int64_t>(cost));
    }
  }
  return static_cast<double>(common);
}

}  // namespace regen
