#include "regen/search/local/swap_schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "regen/search/build/sequence.h"

namespace regen::search {

std::vector<StageReuse> find_stage_reuses(const StageProblem& stages) {
  std::vector<StageReuse> intervals;
  for (ValueId v : IdRange<ValueId>(stages.num_values)) {
    std::size_t used = stages.producer[v];
    for (OpId reader : stages.readers[v]) {
      if (reader.index() > used + 1) intervals.push_back({v, used + 1, reader.index()});
      used = reader.index();
    }
  }
  return intervals;
}

IntervalDecision way_of(const SwapSchedule& schedule, const StageReuse& interval) {
  if (!schedule.keep.get(interval.last, interval.value)) return IntervalDecision::kDrop;
  return schedule.away.get(interval.last, interval.value) ? IntervalDecision::kMove
                                                          : IntervalDecision::kKeep;
}

void set_way(SwapSchedule& schedule, const StageReuse& interval, IntervalDecision way) {
  if (way == IntervalDecision::kDrop) {
    schedule.keep.clear(interval.value, interval.first, interval.last);
  } else {
    schedule.keep.set(interval.value, interval.first, interval.last);
  }
  if (way == IntervalDecision::kMove) {
    schedule.away.set(interval.value, interval.first, interval.last);
  } else {
    schedule.away.clear(interval.value, interval.first, interval.last);
  }
}

SwapSchedule uniform_schedule(const StageProblem& stages, const std::vector<StageReuse>& intervals,
                              IntervalDecision way) {
  SwapSchedule schedule{.keep = keep_everything(stages),
                        .away = KeepMatrix(stages.num_ops, stages.num_values)};
  for (const StageReuse& interval : intervals) {
    if (stages.bytes[interval.value] > 0) set_way(schedule, interval, way);
  }
  return schedule;
}

SwapSchedule schedule_of(const StageProblem& stages, const std::vector<StageReuse>& intervals,
                         const Plan& plan) {
  std::vector<OpId> sequence;
  IdVector<OpId, char> ran(stages.num_ops, 0);
  IdVector<TensorId, std::vector<std::size_t>> fetched_in(stages.graph->num_tensors());
  std::size_t stage = 0;
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kFetch) fetched_in[step.tensor()].push_back(stage);
    if (step.kind() != StepKind::kCompute) continue;
    sequence.push_back(step.op());
    if (!std::exchange(ran[step.op()], 1)) ++stage;
  }
  SwapSchedule schedule{.keep = keep_of_sequence(stages, sequence),
                        .away = KeepMatrix(stages.num_ops, stages.num_values)};
  for (const StageReuse& interval : intervals) {
    if (way_of(schedule, interval) == IntervalDecision::kDrop) continue;
    const bool moved = std::ranges::any_of(
        fetched_in[stages.tensor[interval.value]],
        [&](std::size_t s) { return interval.first <= s && s <= interval.last; });
    if (moved) set_way(schedule, interval, IntervalDecision::kMove);
  }
  return schedule;
}

SwapEvaluator::SwapEvaluator(const Problem& problem, const StageProblem& stages)
    : problem_(problem),
      stages_(stages),
      stage_evaluator_(stages),
      lead_(stages.graph->num_tensors(), 1) {}

std::optional<Candidate> SwapEvaluator::evaluate(const SwapSchedule& schedule) {
  const Graph& graph = *stages_.graph;
  if (!stage_evaluator_.evaluate(schedule.keep, std::numeric_limits<Bytes>::max() / 4))
    return std::nullopt;
  Plan plan = plan_from_sequence(graph, stage_evaluator_.sequence());
  const std::vector<Absence> away = within_host_budget(absences(schedule.away));
  if (!away.empty() && problem_.budget) {
    const Bytes least = move_tensors(graph, plan.steps, away, problem_.link, 0).peak_bytes;
    const Bytes limit = std::max(least, *problem_.budget);
    plan.steps = move_tensors(graph, plan.steps, away, problem_.link, limit).steps;
  }
  auto simulation = simulate(graph, plan, {.link = problem_.link});
  if (!simulation.ok()) return std::nullopt;
  find_peak(plan, *simulation);
  return Candidate{.plan = std::move(plan), .simulation = *std::move(simulation)};
}

std::vector<Absence> SwapEvaluator::absences(const KeepMatrix& away) const {
  constexpr std::size_t kNever = SIZE_MAX;
  std::vector<Absence> found;
  if (!problem_.link.can_move()) return found;
  IdVector<ValueId, std::size_t> touched(stages_.num_values, kNever);
  const std::vector<OpId>& sequence = stage_evaluator_.sequence();
  for (std::size_t time = 0; time < sequence.size(); ++time) {
    for (ValueId v : stages_.reads[sequence[time]]) {
      const std::size_t stage = stage_evaluator_.stage_of(time);
      const std::size_t before = stage_evaluator_.stage_of(touched[v]);
      bool may_leave = time - touched[v] > 1 && stage > before;
      for (std::size_t row = before + 1; row <= stage && may_leave; ++row) {
        may_leave = away.get(row, v);
      }
      if (may_leave) {
        const TensorId tensor = stages_.tensor[v];
        found.push_back({tensor, touched[v], time, lead_[tensor]});
      }
      touched[v] = time;
    }
    for (ValueId v : stages_.makes[sequence[time]]) touched[v] = time;
  }
  return found;
}

// Whatever moves may be on the host at the same time as everything else that does.
std::vector<Absence> SwapEvaluator::within_host_budget(std::vector<Absence> absences) const {
  if (!problem_.host_budget) return absences;
  const Graph& graph = *stages_.graph;
  IdVector<TensorId, char> moves(graph.num_tensors(), 0);
  Bytes sum = 0;
  std::erase_if(absences, [&](const Absence& absence) {
    if (moves[absence.tensor]) return false;
    if (sum + graph.bytes(absence.tensor) > *problem_.host_budget) return true;
    moves[absence.tensor] = 1;
    sum += graph.bytes(absence.tensor);
    return false;
  });
  return absences;
}

void SwapEvaluator::find_peak(const Plan& plan, const Simulation& simulation) {
  std::size_t computes = 0;
  for (std::size_t i = 0; i < simulation.peak_step; ++i) {
    computes += plan.steps[i].kind() == StepKind::kCompute ? 1 : 0;
  }
  peak_stage_ =
      stage_evaluator_.stage_of(std::min(computes, stage_evaluator_.sequence().size() - 1));
}

}  // namespace regen::search
