// Nothing is kept but the value just made: the least memory that a sequential schedule can get
// by with on a chain, at a cost that grows with the square of its length.
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/planner_list.h"
#include "regen/search/build/sequence.h"
#include "regen/published/checkmate/stage_schedule.h"

namespace regen {
namespace {

constexpr std::size_t kMaxSteps = 50'000'000;

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

Result<Proposal> plan_last_node(const Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  if (problem.options.accounting == Accounting::kCheckmate) {
    REGEN_ASSIGN([[maybe_unused]] const std::size_t n, mirrored_forward_ops(graph));
    return Proposal{.plan = checkmate_plan(graph)};
  }
  REGEN_TRY(check_sequences_possible(graph));
  const std::vector<OpId> sequence = keep_last_sequence(graph, kMaxSteps, effort);
  if (sequence.empty()) {
    return Proposal{.status = PlanStatus::kUnknown,
                    .note = "the plan would have more than " +
                            format_grouped(static_cast<std::int64_t>(kMaxSteps)) +
                            " steps, or a limit was reached"};
  }
  return Proposal{.plan = plan_from_sequence(graph, sequence)};
}

}  // namespace regen
