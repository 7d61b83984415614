#include "regen/search/build/checkpoint_plan.h"

#include <algorithm>
#include <utility>

#include "regen/graph/analysis.h"
#include "regen/search/build/sequence.h"
#include "regen/published/checkmate/stage_schedule.h"

namespace regen {
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

}  // namespace

std::vector<OpId> candidate_checkpoints(const Graph& graph, CandidateSet set,
                                        Accounting accounting) {
  const bool sorted = accounting == Accounting::kPlain;
  std::vector<OpId> found;
  if (set == CandidateSet::kArticulationPoints) {
    found = sorted ? articulation_points(graph) : articulation_points_in_set_order(graph);
  } else {
    found = sorted ? connected_forward_ops(graph) : connected_forward_ops_in_set_order(graph);
  }
  // A view has nothing to keep.
  std::erase_if(found, [&](OpId op) { return graph.outputs(op).empty(); });
  return found;
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

Result<Candidate> plan_checkpoints(const Problem& problem, const std::vector<OpId>& checkpoints,
                                   Effort& effort) {
  const Graph& graph = *problem.graph;
  Candidate candidate;
  if (problem.options.accounting == Accounting::kCheckmate) {
    REGEN_ASSIGN(const std::size_t n, mirrored_forward_ops(graph));
    candidate.plan = checkmate_plan(graph, n, checkpoints);
    effort.add(static_cast<std::int64_t>(candidate.plan.steps.size()));
  } else {
    REGEN_TRY(check_sequences_possible(graph));
    const Checkpoints marks = make_checkpoints(graph, checkpoints);
    candidate.plan = plan_from_sequence(graph, recompute_sequence(graph, marks, effort));
  }
  REGEN_ASSIGN(candidate.simulation, simulate(graph, candidate.plan, {.link = problem.link}));
  return candidate;
}

bool BestCandidate::better(const Candidate& a, const Candidate& b) const {
  const bool a_fits = within_limits(problem_, a.simulation);
  if (a_fits != within_limits(problem_, b.simulation)) return a_fits;
  const double a_peak = static_cast<double>(a.simulation.peak_bytes);
  const double b_peak = static_cast<double>(b.simulation.peak_bytes);
  if (a_fits && problem_.budget) {
    return std::pair(a.simulation.cost, a_peak) < std::pair(b.simulation.cost, b_peak);
  }
  return std::pair(a_peak, a.simulation.cost) < std::pair(b_peak, b.simulation.cost);
}

void BestCandidate::offer(Candidate candidate) {
  if (best_ && !better(candidate, *best_)) return;
  best_ = std::move(candidate);
  // Heuristics prove nothing, so the bound they tell is that no cost is negative.
  if (problem_.observer && within_limits(problem_, best_->simulation)) {
    problem_.observer(clock_.seconds(), best_->simulation.cost, 0);
  }
}

Proposal BestCandidate::proposal(std::string reason_if_none) && {
  if (!best_) return {.status = PlanStatus::kUnknown, .note = std::move(reason_if_none)};
  return {.status = PlanStatus::kFeasible,
          .plan = std::move(best_->plan),
          .note = std::move(best_->note)};
}

}  // namespace regen
