#include "regen/search/exact/rerun_branching.h"

#include <cmath>
#include <limits>

namespace regen::search {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

IdVector<OpId, double> count_reruns(const StageModel& model, const std::vector<double>& relaxed) {
  const StageProblem& stages = model.stages();
  IdVector<OpId, double> counts(stages.num_ops, 0);
  for (OpId op : stages.graph->ops()) {
    for (std::size_t t = op.index() + 1; t <= stages.rerun_until[op]; ++t) {
      counts[op] += model.value(model.run(t, op), relaxed);
    }
  }
  return counts;
}

IdVector<OpId, double> count_reruns(const StageModel& model, std::span<const OpId> sequence) {
  IdVector<OpId, double> counts(model.stages().num_ops, -1);
  for (const OpId op : sequence) counts[op] += 1;
  return counts;
}

std::vector<OpId> ops_as_expensive_as(const StageProblem& stages, OpId least) {
  std::vector<OpId> ops;
  for (OpId op : stages.graph->ops()) {
    const bool may_run_again = stages.rerun_until[op] > 0;
    if (may_run_again && stages.rerun_cost[op] >= stages.rerun_cost[least]) ops.push_back(op);
  }
  return ops;
}

RerunBranching make_split(std::vector<OpId> ops, const IdVector<OpId, double>& in_best,
                          const IdVector<OpId, double>& in_relaxed) {
  RerunBranching split;
  double relaxed = 0;
  for (const OpId op : ops) {
    split.best += in_best[op];
    relaxed += in_relaxed[op];
  }
  split.relaxed_below = relaxed < split.best;
  split.ops = std::move(ops);
  return split;
}

}  // namespace

void RerunBranching::keep_best_side(StageModel& model) const {
  relaxed_below ? model.limit_reruns(ops, best, kInfinity) : model.limit_reruns(ops, 0, best);
}

void RerunBranching::keep_other_side(StageModel& model) const {
  relaxed_below ? model.limit_reruns(ops, 0, best - 1)
                : model.limit_reruns(ops, best + 1, kInfinity);
}

std::vector<RerunBranching> find_rerun_branchings(const StageModel& model,
                                                  const std::vector<double>& relaxed,
                                                  std::span<const OpId> best_sequence,
                                                  double least_cost) {
  const StageProblem& stages = model.stages();
  const IdVector<OpId, double> in_relaxed = count_reruns(model, relaxed);
  const IdVector<OpId, double> in_best = count_reruns(model, best_sequence);
  OpId op;
  double most = least_cost;
  for (OpId i : stages.graph->ops()) {
    const double cost = stages.rerun_cost[i] * std::abs(in_best[i] - in_relaxed[i]);
    if (stages.rerun_until[i] > 0 && cost > most) {
      most = cost;
      op = i;
    }
  }
  if (!op.valid()) return {};
  std::vector<RerunBranching> splits;
  const std::vector<OpId> expensive = ops_as_expensive_as(stages, op);
  if (expensive.size() > 1) splits.push_back(make_split(expensive, in_best, in_relaxed));
  splits.push_back(make_split({op}, in_best, in_relaxed));
  return splits;
}

}  // namespace regen::search
