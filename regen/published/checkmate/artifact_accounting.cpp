#include "regen/published/checkmate/artifact_accounting.h"

#include <algorithm>

#include "regen/published/checkmate/set_order.h"
#include "regen/published/checkmate/stage_schedule.h"

namespace regen::published {
namespace {

TensorId output_of(const Graph& graph, std::size_t op) {
  return graph.outputs(OpId(op))[0];
}

// Items 1 and 2 of the published strategy: gradients are kept from their making to their last
// use, and every input is there at the stage of its reader.
void keep_gradients_and_inputs(const Graph& graph, std::size_t n, StageSchedule& schedule) {
  for (OpId reader : graph.ops()) {
    const auto stage = static_cast<std::int64_t>(reader.index());
    for (TensorId t : graph.inputs(reader)) {
      const OpId maker = graph.producer(t);
      if (!maker.valid()) continue;
      const bool gradient = maker.index() >= n;
      schedule.keep(t, gradient ? static_cast<std::int64_t>(maker.index()) + 1 : stage, stage);
    }
  }
}

// Items 4 to 6: while a segment [a, b) is run or reversed, all its values and gradients stay.
void keep_segment(const Graph& graph, std::int64_t n, std::int64_t a, std::int64_t b,
                  StageSchedule& schedule) {
  const std::int64_t stages = 2 * n + 1;
  for (std::int64_t i = a; i < b; ++i) {
    const TensorId value = output_of(graph, static_cast<std::size_t>(i));
    schedule.keep(value, std::max(stages - b, i + 1), stages - 1 - a);
    schedule.keep(value, i + 1, b);
    if (i == n) continue;  // the loss has no gradient op
    const TensorId gradient = output_of(graph, static_cast<std::size_t>(2 * n - i));
    schedule.keep(gradient, stages - i, stages - 1 - a);
  }
}

// The published strategy: checkpoints are kept to the very end, used or not.
Plan checkmate_plan(const Graph& graph, std::size_t n, std::vector<OpId> checkpoints) {
  std::sort(checkpoints.begin(), checkpoints.end());
  StageSchedule schedule(graph);
  keep_gradients_and_inputs(graph, n, schedule);
  std::int64_t begin = 0;
  for (OpId op : checkpoints) {
    const auto stage = static_cast<std::int64_t>(op.index());
    schedule.keep(output_of(graph, op.index()), stage + 1,
                  static_cast<std::int64_t>(schedule.num_stages()) - 1);
    keep_segment(graph, static_cast<std::int64_t>(n), begin, stage, schedule);
    begin = stage;
  }
  keep_segment(graph, static_cast<std::int64_t>(n), begin, static_cast<std::int64_t>(n) + 1,
               schedule);
  schedule.complete();
  return schedule.compile();
}

class ArtifactAccounting : public search::Accounting {
 public:
  std::string_view name() const override { return "checkmate"; }

  Status check(const Graph& graph) const override {
    const auto n = mirrored_forward_ops(graph);
    return n.ok() ? Status() : Status(n.error());
  }

  std::vector<OpId> candidates(const Graph& graph, search::CandidateSet set) const override {
    return set == search::CandidateSet::kArticulationPoints
               ? articulation_points_in_set_order(graph)
               : connected_forward_ops_in_set_order(graph);
  }

  std::vector<OpId> walk(const Graph& graph) const override { return undirected_dfs_order(graph); }

  Result<Plan> plan(const Graph& graph, const std::vector<OpId>& checkpoints,
                    Effort& effort) const override {
    REGEN_ASSIGN(const std::size_t n, mirrored_forward_ops(graph));
    Plan plan = checkmate_plan(graph, n, checkpoints);
    effort.add(static_cast<std::int64_t>(plan.steps.size()));
    return plan;
  }

  bool counts_fixed_bytes_twice() const override { return true; }
};

}  // namespace

const search::Accounting& artifact_accounting() {
  static const ArtifactAccounting kArtifact;
  return kArtifact;
}

bool counts_as_artifact(const search::Problem& problem) {
  return problem.options.accounting == &artifact_accounting();
}

Result<std::size_t> mirrored_forward_ops(const Graph& graph) {
  const Error error = bad_input(
      "accounting checkmate needs a graph of n forward ops, a loss and n mirrored backward ops "
      "with "
      "one output each, as zoo: gives with --backward checkmate; graph '" +
      graph.name() + "' is not");
  if (graph.num_ops() % 2 == 0) return error;
  const std::size_t n = graph.num_ops() / 2;
  for (OpId op : graph.ops()) {
    const Phase expected = op.index() < n    ? Phase::kForward
                           : op.index() == n ? Phase::kLoss
                                             : Phase::kBackward;
    if (graph.phase(op) != expected || graph.outputs(op).size() != 1) return error;
  }
  return n;
}

}  // namespace regen::published
