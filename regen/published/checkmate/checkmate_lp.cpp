// Checkmate's relaxation: alone as a lower bound, and rounded to schedules in two phases. The
// first phase decides from the fractional S what is carried, the second finds the least re-runs
// for that. What comes out over the budget is repaired by dropping values, so that a plan is
// either within it or not returned.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "regen/published/checkmate/unpartitioned_model.h"
#include "regen/published/options.h"
#include "regen/published/planner_list.h"
#include "regen/search/build/sequence.h"
#include "regen/search/exact/stage_incumbent.h"
#include "regen/search/exact/stage_model.h"
#include "regen/search/planner_list.h"

namespace regen::published {
namespace {

// The published choice: solve for a little less than the budget, so that rounding has room.
constexpr double kRoomForRounding = 0.9;
constexpr std::size_t kMostColumns = 1'500'000;

// A sequence of ops; nothing if one would have to run again that may not.
using Rounded = std::optional<std::vector<OpId>>;

struct Relaxation {
  search::ModelStatus status = search::ModelStatus::kFailed;
  double bound = 0;  // in the graph's unit
  std::vector<double> values;
};

// Memory rows are added until the solution keeps them all.
Relaxation relax(search::StageModel& model, Effort& effort) {
  Relaxation result{.bound = model.stages().base_cost};
  while (true) {
    search::ModelAnswer answer = model.linear().solve_relaxation(effort);
    result.status = answer.status;
    result.bound =
        std::max(result.bound, model.stages().base_cost + model.from_model(answer.bound));
    if (answer.status != search::ModelStatus::kOptimal) return result;
    result.values = std::move(answer.values);
    if (model.add_broken_memory_rows(result.values) == 0 || effort.exhausted()) return result;
  }
}

Status check_size(const search::StageProblem& stages, const Effort& effort) {
  const std::size_t columns = search::StageModel::count_columns(stages);
  const std::int64_t bytes = search::estimated_model_bytes(columns);
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

// Each value is carried into each stage with the probability that the relaxation says.
Rounded randomly_rounded(const search::StageModel& model, const std::vector<double>& values,
                         Random& random) {
  const search::StageProblem& stages = model.stages();
  std::vector<std::vector<bool>> carried(stages.num_values);
  for (search::ValueId v : IdRange<search::ValueId>(stages.num_values)) {
    for (std::size_t t = stages.producer[v] + 1; t <= stages.useful_until[v]; ++t) {
      carried[v.index()].push_back(random.chance(model.value(model.kept(t, v), values)));
    }
  }
  return search::sequence_of_stages(stages, [&](std::size_t stage, search::ValueId v) {
    return carried[v.index()][stage - stages.producer[v] - 1];
  });
}

// What one rounding rule makes of a fractional solution.
std::vector<Rounded> round_all(const search::StageModel& model, const std::vector<double>& values,
                               const Options& options, Random& random) {
  std::vector<Rounded> result;
  switch (options.rounding) {
    case Rounding::kSweep:
      for (int i = 1; i <= 9; ++i) result.push_back(model.rounded(values, 0.1 * i));
      break;
    case Rounding::kHalf:
      result.push_back(model.rounded(values, 0.5));
      break;
    case Rounding::kRandomThreshold:
      for (int i = 0; i < options.samples; ++i) {
        // A threshold of 0 would carry everything everywhere.
        result.push_back(model.rounded(values, std::max(1e-6, random_threshold(random))));
      }
      break;
    case Rounding::kRandomised:
      for (int i = 0; i < options.samples; ++i) {
        result.push_back(randomly_rounded(model, values, random));
      }
      break;
  }
  return result;
}

// The relaxation of the schedules that the paper compares with its own.
Result<search::Proposal> unpartitioned_bound(const search::Problem& problem, Effort& effort) {
  REGEN_ASSIGN(const UnpartitionedAnswer answer, solve_imposed(problem, /*whole=*/false, effort));
  const bool none = answer.status == search::ModelStatus::kInfeasible;
  return search::Proposal{
      .status = none ? search::PlanStatus::kInfeasible : search::PlanStatus::kUnknown,
      .lower_bound = answer.bound,
      // solve() raises the bound to one run of every op; this is what it was.
      .note = none ? "not even a fractional schedule fits"
                   : "the relaxation by itself: " + format_exact(answer.bound)};
}

}  // namespace

Result<search::Proposal> plan_lp_bound(const search::Problem& problem, Effort& effort) {
  if (options_of(problem).schedule != ImposedSchedule::kFrontier) {
    return unpartitioned_bound(problem, effort);
  }
  const search::StageProblem stages =
      search::make_stage_problem(*problem.graph, !problem.options.recompute_gradients);
  if (!problem.budget) {
    return search::Proposal{.status = search::PlanStatus::kUnknown,
                            .lower_bound = stages.exact ? stages.base_cost : 0,
                            .note = "no budget: every op once"};
  }
  REGEN_TRY(check_size(stages, effort));
  search::StageModel model(stages, *problem.budget - stages.fixed_bytes);
  const Relaxation relaxation = relax(model, effort);
  search::Proposal proposal{.status = search::PlanStatus::kUnknown, .note = "a lower bound only"};
  if (relaxation.status == search::ModelStatus::kInfeasible) {
    proposal.note = "not even a fractional schedule fits";
    if (stages.exact) proposal.status = search::PlanStatus::kInfeasible;
  }
  if (stages.exact) proposal.lower_bound = relaxation.bound;
  return proposal;
}

Result<search::Proposal> plan_checkmate_lp(const search::Problem& problem, Effort& effort) {
  REGEN_TRY(search::check_sequences_possible(*problem.graph));
  if (!problem.budget) return search::plan_keep_all(problem, effort);
  const search::StageProblem stages =
      search::make_stage_problem(*problem.graph, !problem.options.recompute_gradients);
  const Bytes budget = *problem.budget - stages.fixed_bytes;
  REGEN_TRY(check_size(stages, effort));
  search::StageIncumbent incumbent(problem, effort);
  const Options options = options_of(problem);
  Random random(problem.options.seed);
  double bound = 0;
  for (const double part : {1.0, kRoomForRounding}) {
    search::StageModel model(stages, static_cast<Bytes>(part * static_cast<double>(budget)));
    const Relaxation relaxation = relax(model, effort);
    if (part == 1.0) {
      bound = relaxation.bound;
      if (relaxation.status == search::ModelStatus::kInfeasible) {
        return search::Proposal{
            .status = stages.exact ? search::PlanStatus::kInfeasible : search::PlanStatus::kUnknown,
            .note = "not even a fractional schedule fits"};
      }
    }
    if (relaxation.values.empty()) continue;
    for (const Rounded& rounded : round_all(model, relaxation.values, options, random)) {
      if (rounded) incumbent.offer(*rounded);
    }
  }
  search::Proposal proposal{.status = search::PlanStatus::kUnknown, .note = "no rounding fits"};
  if (stages.exact) proposal.lower_bound = bound;
  if (incumbent.found()) {
    proposal.status = search::PlanStatus::kFeasible;
    proposal.plan = search::plan_from_sequence(*problem.graph, incumbent.sequence());
    proposal.note.clear();
  }
  return proposal;
}

}  // namespace regen::published
