#include "regen/published/baselines/last_node.h"

#include <algorithm>

#include "regen/published/checkmate/artifact_accounting.h"
#include "regen/published/checkmate/stage_schedule.h"
#include "regen/published/planner_list.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"

namespace regen::published {
namespace {

constexpr std::size_t kMaxSteps = 50'000'000;

// What is available while ops run one after the other, each with all that it misses before it.
class KeptLast {
 public:
  explicit KeptLast(const Graph& graph)
      : graph_(graph),
        repeatable_(search::repeatable_ops(graph, /*forward_only=*/false)),
        available_(graph.num_tensors(), 0),
        mark_(graph.num_ops()) {
    for (TensorId t : graph.tensors()) available_[t] = graph.fixed(t);
  }

  // The ops that run for this one, itself the last of them.
  std::vector<OpId> run(OpId op) {
    std::vector<OpId> ops{op};
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (TensorId t : graph_.reads(search::base_variant(graph_, ops[i]))) {
        const OpId maker = graph_.producer(t);
        if (available_[t] || mark_[maker] == op) continue;
        mark_[maker] = op;
        ops.push_back(maker);
      }
    }
    std::ranges::sort(ops);
    keep_outputs_of(op);
    return ops;
  }

 private:
  // An op that may not run again keeps what it made.
  void keep_outputs_of(OpId op) {
    if (op.index() > 0 && repeatable_[OpId(op.index() - 1)]) {
      set_outputs(OpId(op.index() - 1), false);
    }
    set_outputs(op, true);
    const TensorId overwritten = graph_.overwrites(search::base_variant(graph_, op));
    if (overwritten.valid()) available_[overwritten] = 0;
  }

  void set_outputs(OpId op, bool available) {
    for (TensorId t : graph_.makes(search::base_variant(graph_, op))) available_[t] = available;
  }

  const Graph& graph_;
  const IdVector<OpId, char> repeatable_;
  IdVector<TensorId, char> available_;
  IdVector<OpId, OpId> mark_;  // the last op for which each ran again
};

Plan checkmate_plan(const Graph& graph) {
  StageSchedule schedule(graph);
  for (std::size_t stage = 1; stage < schedule.num_stages(); ++stage) {
    const auto t = static_cast<std::int64_t>(stage);
    schedule.keep(graph.outputs(OpId(stage - 1))[0], t, t);
  }
  schedule.complete();
  return schedule.compile();
}

}  // namespace

std::vector<OpId> keep_last_sequence(const Graph& graph, std::size_t max_steps, Effort& effort) {
  std::vector<OpId> sequence;
  KeptLast kept(graph);
  for (OpId op : graph.ops()) {
    const std::vector<OpId> ops = kept.run(op);
    sequence.insert(sequence.end(), ops.begin(), ops.end());
    effort.add(static_cast<std::int64_t>(ops.size()));
    if (sequence.size() > max_steps || effort.exhausted()) return {};
  }
  return sequence;
}

Result<search::Proposal> plan_last_node(const search::Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  if (counts_as_artifact(problem)) {
    REGEN_TRY(artifact_accounting().check(graph));
    return search::Proposal{.plan = checkmate_plan(graph)};
  }
  REGEN_TRY(search::check_sequences_possible(graph));
  const std::vector<OpId> sequence = keep_last_sequence(graph, kMaxSteps, effort);
  if (sequence.empty()) {
    return search::Proposal{.status = search::PlanStatus::kUnknown,
                            .note = "the plan would have more than " +
                                    format_grouped(static_cast<std::int64_t>(kMaxSteps)) +
                                    " steps, or a limit was reached"};
  }
  return search::Proposal{.plan = search::plan_from_sequence(graph, sequence)};
}

}  // namespace regen::published
