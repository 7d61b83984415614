// Checkmate's relaxation: alone as a lower bound, and rounded to schedules in two phases. The
// first phase decides from the fractional S what is carried, the second finds the least re-runs
// for that. What comes out over the budget is repaired by dropping values, so that a plan is
// either within it or not returned.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "regen/search/build/sequence.h"
#include "regen/search/exact/stage_model.h"
#include "regen/search/local/stage_search.h"
#include "regen/search/planner_list.h"

namespace regen::search {
namespace {

// The published choice: solve for a little less than the budget, so that rounding has room.
constexpr double kRoomForRounding = 0.9;
constexpr std::size_t kMostColumns = 1'500'000;

struct Relaxation {
  ModelStatus status = ModelStatus::kFailed;
  double bound = 0;  // in the graph's unit
  std::vector<double> values;
};

// Memory rows are added until the solution keeps them all.
Relaxation relax(StageModel& program, Effort& effort) {
  Relaxation result{.bound = program.stages().base_cost};
  while (true) {
    ModelAnswer answer = program.program().solve_relaxation(effort);
    result.status = answer.status;
    result.bound =
        std::max(result.bound, program.stages().base_cost + program.from_program(answer.bound));
    if (answer.status != ModelStatus::kOptimal) return result;
    result.values = std::move(answer.values);
    if (program.add_broken_memory_rows(result.values) == 0 || effort.exhausted()) return result;
  }
}

Status check_size(const StageProblem& stages, const Effort& effort) {
  const std::size_t columns = StageModel::count_columns(stages);
  const std::int64_t bytes = estimated_model_bytes(columns);
  if (!effort.has_room_for(bytes)) {
    return limit_reached("the relaxation of '" + stages.graph->name() + "' takes about " +
                         format_grouped(bytes) + " bytes, expected at most the limit of " +
                         format_grouped(effort.limits().bytes));
  }
  if (columns <= kMostColumns) return {};
  return limit_reached("the relaxation of '" + stages.graph->name() + "' has " +
                       format_count(static_cast<std::int64_t>(columns), "column") +
                       ", more than the " + format_grouped(kMostColumns) + " that are tried");
}

// Normal with mean and deviation 0.5, cut to [0, 1] (Box and Muller).
double random_threshold(Random& random) {
  const double radius = std::sqrt(-2 * std::log(1 - random.real()));
  const double draw = radius * std::cos(2 * std::numbers::pi * random.real());
  return std::clamp(0.5 + 0.5 * draw, 0.0, 1.0);
}

KeepMatrix randomly_rounded(const StageModel& program, const std::vector<double>& values,
                            Random& random) {
  const StageProblem& stages = program.stages();
  KeepMatrix keep(stages.num_ops, stages.num_values);
  for (ValueId v : IdRange<ValueId>(stages.num_values)) {
    for (std::size_t t = stages.producer[v] + 1; t <= stages.useful_until[v]; ++t) {
      if (random.chance(program.value(program.kept(t, v), values))) keep.set(t, v);
    }
  }
  return keep;
}

// What one rounding rule makes of a fractional solution.
std::vector<KeepMatrix> round_all(const StageModel& program, const std::vector<double>& values,
                                  const PlannerOptions& options, Random& random) {
  std::vector<KeepMatrix> result;
  switch (options.rounding) {
    case Rounding::kSweep:
      for (int i = 1; i <= 9; ++i) result.push_back(program.rounded(values, 0.1 * i));
      break;
    case Rounding::kHalf:
      result.push_back(program.rounded(values, 0.5));
      break;
    case Rounding::kRandomThreshold:
      for (int i = 0; i < options.samples; ++i) {
        // A threshold of 0 would carry everything everywhere.
        result.push_back(program.rounded(values, std::max(1e-6, random_threshold(random))));
      }
      break;
    case Rounding::kRandomised:
      for (int i = 0; i < options.samples; ++i) {
        result.push_back(randomly_rounded(program, values, random));
      }
      break;
  }
  return result;
}

}  // namespace

Result<Proposal> plan_lp_bound(const Problem& problem, Effort& effort) {
  const StageProblem stages =
      make_stage_problem(*problem.graph, !problem.options.recompute_gradients);
  if (!problem.budget) {
    return Proposal{.status = PlanStatus::kUnknown,
                    .lower_bound = stages.exact ? stages.base_cost : 0,
                    .note = "no budget: every op once"};
  }
  REGEN_TRY(check_size(stages, effort));
  StageModel program(stages, *problem.budget - stages.fixed_bytes);
  const Relaxation relaxation = relax(program, effort);
  Proposal proposal{.status = PlanStatus::kUnknown, .note = "a lower bound only"};
  if (relaxation.status == ModelStatus::kInfeasible) {
    proposal.note = "not even a fractional schedule fits";
    if (stages.exact) proposal.status = PlanStatus::kInfeasible;
  }
  if (stages.exact) proposal.lower_bound = relaxation.bound;
  return proposal;
}

Result<Proposal> plan_checkmate_lp(const Problem& problem, Effort& effort) {
  REGEN_TRY(check_sequences_possible(*problem.graph));
  if (!problem.budget) return plan_keep_all(problem, effort);
  const StageProblem stages =
      make_stage_problem(*problem.graph, !problem.options.recompute_gradients);
  const Bytes budget = *problem.budget - stages.fixed_bytes;
  REGEN_TRY(check_size(stages, effort));
  StageSearch repair(stages, budget, problem.options.seed, effort);
  Random random(problem.options.seed);
  double bound = 0;
  for (const double part : {1.0, kRoomForRounding}) {
    StageModel program(stages, static_cast<Bytes>(part * static_cast<double>(budget)));
    const Relaxation relaxation = relax(program, effort);
    if (part == 1.0) {
      bound = relaxation.bound;
      if (relaxation.status == ModelStatus::kInfeasible) {
        return Proposal{.status = stages.exact ? PlanStatus::kInfeasible : PlanStatus::kUnknown,
                        .note = "not even a fractional schedule fits"};
      }
    }
    if (relaxation.values.empty()) continue;
    for (KeepMatrix& keep : round_all(program, relaxation.values, problem.options, random)) {
      repair.add_start(std::move(keep));
    }
  }
  Proposal proposal{.status = PlanStatus::kUnknown, .note = "no rounding fits"};
  if (stages.exact) proposal.lower_bound = bound;
  if (repair.found()) {
    proposal.status = PlanStatus::kFeasible;
    proposal.plan = plan_from_sequence(*problem.graph, repair.best_sequence());
    proposal.note.clear();
  }
  return proposal;
}

}  // namespace regen::search
