// Nothing is kept but the value just made: the least memory that a sequential schedule can get
// by with on a chain, at a cost that grows with the square of its length.
#include "regen/published/checkmate/artifact_accounting.h"
#include "regen/published/checkmate/stage_schedule.h"
#include "regen/published/planner_list.h"
#include "regen/search/build/checkpoint_plan.h"
#include "regen/search/build/sequence.h"

namespace regen::published {
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

Result<search::Proposal> plan_last_node(const search::Problem& problem, Effort& effort) {
  const Graph& graph = *problem.graph;
  if (counts_as_artifact(problem)) {
    REGEN_TRY(artifact_accounting().check(graph));
    return search::Proposal{.plan = checkmate_plan(graph)};
  }
  REGEN_TRY(search::check_sequences_possible(graph));
  const std::vector<OpId> sequence = search::keep_last_sequence(graph, kMaxSteps, effort);
  if (sequence.empty()) {
    return search::Proposal{.status = search::PlanStatus::kUnknown,
                            .note = "the plan would have more than " +
                                    format_grouped(static_cast<std::int64_t>(kMaxSteps)) +
                                    " steps, or a limit was reached"};
  }
  return search::Proposal{.plan = search::plan_from_sequence(graph, sequence)};
}

}  // namespace regen::published
