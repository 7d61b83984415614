#include "regen/search/local/swap_schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "regen/search/build/sequence.h"

namespace regen {

std::vector<StageGap> find_stage_gaps(const Frontier& frontier) {
  std::vector<StageGap> gaps;
  for (ValueId v : IdRange<ValueId>(frontier.num_values)) {
    std::size_t used = frontier.producer[v];
    for (OpId reader : frontier.readers[v]) {
      if (reader.index() > used + 1) gaps.push_back({v, used + 1, reader.index()});
      used = reader.index();
    }
  }
  return gaps;
}

GapWay way_of(const HybridSchedule& schedule, const StageGap& gap) {
  if (!schedule.keep.get(gap.last, gap.value)) return GapWay::kDrop;
  return schedule.away.get(gap.last, gap.value) ? GapWay::kMove : GapWay::kKeep;
}

void set_way(HybridSchedule& schedule, const StageGap& gap, GapWay way) {
  if (way == GapWay::kDrop) {
    schedule.keep.clear(gap.value, gap.first, gap.last);
  } else {
    schedule.keep.set(gap.value, gap.first, gap.last);
  }
  if (way == GapWay::kMove) {
    schedule.away.set(gap.value, gap.first, gap.last);
  } else {
    schedule.away.clear(gap.value, gap.first, gap.last);
  }
}

HybridSchedule uniform_schedule(const Frontier& frontier, const std::vector<StageGap>& gaps,
                                GapWay way) {
  HybridSchedule schedule{.keep = keep_everything(frontier),
                          .away = KeepMatrix(frontier.num_ops, frontier.num_values)};
  for (const StageGap& gap : gaps) {
    if (frontier.bytes[gap.value] > 0) set_way(schedule, gap, way);
  }
  return schedule;
}

HybridSchedule schedule_of(const Frontier& frontier, const std::vector<StageGap>& gaps,
                           const Plan& plan) {
  std::vector<OpId> sequence;
  IdVector<OpId, char> ran(frontier.num_ops, 0);
  IdVector<TensorId, std::vector<std::size_t>> fetched_in(frontier.graph->num_tensors());
  std::size_t stage = 0;
  for (const Step& step : plan.steps) {
    if (step.kind() == StepKind::kFetch) fetched_in[step.tensor()].push_back(stage);
    if (step.kind() != StepKind::kCompute) continue;
    sequence.push_back(step.op());
    if (!std::exchange(ran[step.op()], 1)) ++stage;
  }
  HybridSchedule schedule{.keep = keep_of_sequence(frontier, sequence),
                          .away = KeepMatrix(frontier.num_ops, frontier.num_values)};
  for (const StageGap& gap : gaps) {
    if (way_of(schedule, gap) == GapWay::kDrop) continue;
    const bool moved =
        std::ranges::any_of(fetched_in[frontier.tensor[gap.value]],
                            [&](std::size_t s) { return gap.first <= s && s <= gap.last; });
    if (moved) set_way(schedule, gap, GapWay::kMove);
  }
  return schedule;
}

HybridEvaluator::HybridEvaluator(const Problem& problem, const Frontier& frontier)
    : problem_(problem),
      frontier_(frontier),
      stages_(frontier),
      lead_(frontier.graph->num_tensors(), 1) {}

std::optional<Candidate> HybridEvaluator::evaluate(const HybridSchedule& schedule) {
  const Graph& graph = *frontier_.graph;
  if (!stages_.evaluate(schedule.keep, std::numeric_limits<Bytes>::max() / 4)) return std::nullopt;
  Plan plan = plan_from_sequence(graph, stages_.sequence());
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

std::vector<Absence> HybridEvaluator::absences(const KeepMatrix& away) const {
  constexpr std::size_t kNever = SIZE_MAX;
  std::vector<Absence> found;
  if (!problem_.link.can_move()) return found;
  IdVector<ValueId, std::size_t> touched(frontier_.num_values, kNever);
  const std::vector<OpId>& sequence = stages_.sequence();
  for (std::size_t time = 0; time < sequence.size(); ++time) {
    for (ValueId v : frontier_.reads[sequence[time]]) {
      const std::size_t stage = stages_.stage_of(time);
      const std::size_t before = stages_.stage_of(touched[v]);
      bool may_leave = time - touched[v] > 1 && stage > before;
      for (std::size_t row = before + 1; row <= stage && may_leave; ++row) {
        may_leave = away.get(row, v);
      }
      if (may_leave) {
        const TensorId tensor = frontier_.tensor[v];
        found.push_back({tensor, touched[v], time, lead_[tensor]});
      }
      touched[v] = time;
    }
    for (ValueId v : frontier_.makes[sequence[time]]) touched[v] = time;
  }
  return found;
}

// Whatever moves may be on the host at the same time as everything else that does.
std::vector<Absence> HybridEvaluator::within_host_budget(std::vector<Absence> absences) const {
  if (!problem_.host_budget) return absences;
  const Graph& graph = *frontier_.graph;
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

void HybridEvaluator::find_peak(const Plan& plan, const Simulation& simulation) {
  std::size_t computes = 0;
  for (std::size_t i = 0; i < simulation.peak_step; ++i) {
    computes += plan.steps[i].kind() == StepKind::kCompute ? 1 : 0;
  }
  peak_stage_ = stages_.stage_of(std::min(computes, stages_.sequence().size() - 1));
}

}  // namespace regen
