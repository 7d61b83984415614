#include "regen/search/exact/stage_problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "regen/search/build/sequence.h"

namespace regen::search {
namespace {

// The planned tensors that base variants make, in the order in which they are made.
IdVector<TensorId, ValueId> number_values(const Graph& graph, StageProblem& stages) {
  IdVector<TensorId, ValueId> value(graph.num_tensors());
  for (OpId op : graph.ops()) {
    for (TensorId t : graph.makes(base_variant(graph, op))) {
      value[t] = stages.tensor.push_back(t);
      stages.bytes.push_back(graph.bytes(t));
      stages.producer.push_back(static_cast<std::uint32_t>(op.index()));
      stages.output.push_back(graph.kind(t) == TensorKind::kOutput);
    }
  }
  return value;
}

void add_ops(const Graph& graph, const IdVector<TensorId, ValueId>& value, StageProblem& stages) {
  std::vector<std::pair<ValueId, OpId>> readers;
  for (OpId op : graph.ops()) {
    const VariantId v = base_variant(graph, op);
    std::vector<ValueId> row;
    for (TensorId t : graph.reads(v)) {
      if (graph.fixed(t)) continue;
      row.push_back(value[t]);
      readers.emplace_back(value[t], op);
    }
    stages.reads.append_row(row);
    row.clear();
    for (TensorId t : graph.makes(v)) row.push_back(value[t]);
    stages.makes.append_row(row);
    stages.workspace.push_back(graph.workspace(v));
    stages.first_cost.push_back(graph.cost(v));
    stages.rerun_cost.push_back(graph.rerun_cost(v));
    stages.base_cost += graph.cost(v);
    if (graph.variants(op).size() > 1 || graph.overwrites(v).valid()) stages.exact = false;
  }
  stages.readers = Csr<ValueId, OpId>::from_pairs(stages.num_values, readers);
}

// Outputs, and what they are made of: from the last op to the first.
void set_useful_behind(StageProblem& stages) {
  stages.useful_behind = stages.output;
  stages.rerun_behind.assign(stages.num_ops, 0);
  for (std::size_t i = stages.num_ops; i-- > 0;) {
    const OpId op(i);
    const bool wanted = std::ranges::any_of(
        stages.makes[op], [&](ValueId v) { return stages.useful_behind[v] != 0; });
    if (!wanted || !stages.again[op] || stages.changed_by[op] != SIZE_MAX) continue;
    stages.rerun_behind[op] = 1;
    for (ValueId v : stages.reads[op]) stages.useful_behind[v] = 1;
  }
}

// From the last op to the first: a value is of use until its readers have run for the last time.
void set_useful_stages(StageProblem& stages) {
  stages.changed_by = first_changes(*stages.graph);
  stages.useful_until.assign(stages.num_values, 0);
  stages.rerun_until.assign(stages.num_ops, 0);
  for (std::size_t i = stages.num_ops; i-- > 0;) {
    const OpId op(i);
    std::uint32_t until = 0;
    for (ValueId v : stages.makes[op]) {
      for (OpId reader : stages.readers[v]) {
        const auto last =
            std::max(static_cast<std::uint32_t>(reader.index()), stages.rerun_until[reader]);
        stages.useful_until[v] = std::max(stages.useful_until[v], last);
      }
      if (stages.output[v]) {
        stages.useful_until[v] = static_cast<std::uint32_t>(stages.num_ops);
      }
      until = std::max(until, stages.useful_until[v]);
    }
    until = std::min(until, static_cast<std::uint32_t>(stages.num_ops - 1));
    // A second run must not read what was changed in between.
    if (stages.changed_by[op] < until) {
      stages.repeatable[op] = 0;
      until = static_cast<std::uint32_t>(stages.changed_by[op]);
    }
    if (stages.again[op] && until > i) stages.rerun_until[op] = until;
  }
  set_useful_behind(stages);
  // A value that an op destroys when it first runs is never carried past that stage.
  for (OpId op : stages.graph->ops()) {
    const TensorId old = stages.graph->overwrites(base_variant(*stages.graph, op));
    if (!old.valid()) continue;
    for (ValueId v : stages.reads[op]) {
      if (stages.tensor[v] == old) {
        stages.useful_until[v] = static_cast<std::uint32_t>(op.index());
        stages.useful_behind[v] = 0;
      }
    }
  }
}

}  // namespace

StageProblem make_stage_problem(const Graph& graph, bool forward_only) {
  StageProblem stages{.graph = &graph, .num_ops = graph.num_ops()};
  const IdVector<TensorId, ValueId> value = number_values(graph, stages);
  stages.num_values = stages.tensor.size();
  add_ops(graph, value, stages);
  stages.repeatable = repeatable_ops(graph, forward_only);
  stages.again = stages.repeatable;
  for (OpId op : graph.ops()) {
    const bool in_phase = !forward_only || graph.phase(op) == Phase::kForward;
    const bool overwrites = graph.overwrites(base_variant(graph, op)).valid();
    if (in_phase && !overwrites && graph.recomputable(op)) stages.again[op] = 1;
  }
  set_useful_stages(stages);
  stages.fixed_bytes = graph.fixed_bytes();
  return stages;
}

StageProblem without_expensive_reruns(const StageProblem& stages, double most) {
  StageProblem result = stages;
  for (OpId op : stages.graph->ops()) {
    if (stages.rerun_cost[op] > most) result.again[op] = result.repeatable[op] = 0;
  }
  set_useful_stages(result);
  return result;
}

double common_cost(const StageProblem& stages) {
  std::int64_t common = 0;
  for (OpId op : stages.graph->ops()) {
    for (const double cost : {stages.first_cost[op], stages.rerun_cost[op]}) {
      if (cost != std::floor(cost) || cost > 9e15) return 0;
      common = std::gcd(common, static_cast<std::int64_t>(cost));
    }
  }
  return static_cast<double>(common);
}

}  // namespace regen::search
