#include "regen/search/local/interval_evaluator.h"

#include <algorithm>
#include <utility>

#include "regen/search/build/resting_values.h"
#include "regen/search/build/sequence.h"
#include "regen/simulate/simulate.h"

namespace regen::search {
namespace {

// What lies on the device at the computes of a step list.
class ByteCount {
 public:
  explicit ByteCount(const Graph& graph)
      : graph_(graph), here_(graph.num_tensors(), 0), live_(graph.fixed_bytes()) {}

  // The bytes in use during the step.
  Bytes take(const Step& step) {
    if (step.kind() == StepKind::kRelease) leave(step.tensor());
    if (step.kind() == StepKind::kFetch) arrive(step.tensor());
    if (step.kind() != StepKind::kCompute) return live_;
    const VariantId variant = step.variant(graph_);
    const TensorId overwritten = graph_.overwrites(variant);
    const auto makes = graph_.makes(variant);
    for (TensorId t : makes.subspan(overwritten.valid() ? 1 : 0)) arrive(t);
    const Bytes during = live_ + graph_.workspace(variant);
    if (overwritten.valid()) {
      leave(overwritten);
      arrive(makes[0]);
    }
    return during;
  }

 private:
  void arrive(TensorId t) {
    if (!here_[t]) live_ += graph_.bytes(t);
    here_[t] = 1;
  }
  void leave(TensorId t) {
    if (here_[t]) live_ -= graph_.bytes(t);
    here_[t] = 0;
  }

  const Graph& graph_;
  IdVector<TensorId, char> here_;
  Bytes live_ = 0;
};

// Takes the bytes at each position into the most of its stage.
class StagePeaks {
 public:
  StagePeaks(IntervalPlan& plan, std::size_t stages) : plan_(plan) {
    plan.stage_bytes.assign(stages, 0);
    plan.worst.assign(stages, 0);
  }

  void add(std::size_t position, Bytes bytes) {
    const std::uint32_t stage = plan_.stage[position];
    if (bytes < plan_.stage_bytes[stage]) return;
    plan_.stage_bytes[stage] = bytes;
    plan_.worst[stage] = static_cast<std::uint32_t>(position);
    plan_.peak_bytes = std::max(plan_.peak_bytes, bytes);
  }

 private:
  IntervalPlan& plan_;
};

void count_bytes_of_steps(const Graph& graph, const std::vector<Step>& steps, IntervalPlan& plan) {
  StagePeaks peaks(plan, graph.num_ops());
  ByteCount count(graph);
  std::size_t computes = 0;
  for (const Step& step : steps) {
    peaks.add(std::min(computes, plan.stage.size() - 1), count.take(step));
    computes += step.kind() == StepKind::kCompute;
  }
}

// From the last op to the first: a value is live from a run that makes it to the last that reads it
// before it is made again.
void count_bytes_of_ops(const IntervalSpace& space, IntervalPlan& plan) {
  const Graph& graph = space.graph;
  StagePeaks peaks(plan, graph.num_ops());
  IdVector<TensorId, char> needed = space.needed_at_end;
  Bytes live = space.bytes_at_end;
  for (std::size_t position = plan.ops.size(); position-- > 0;) {
    const OpId op = plan.ops[position];
    Bytes during = live + graph.workspace(space.model.variant(op));
    for (TensorId t : space.model.makes(op)) {
      const Bytes bytes = graph.bytes(t);
      if (needed[t]) {
        live -= bytes;
      } else {
        during += bytes;
      }
      needed[t] = 0;
    }
    for (TensorId t : space.model.reads(op)) {
      if (needed[t]) continue;
      needed[t] = 1;
      live += graph.bytes(t);
      during += graph.bytes(t);
    }
    peaks.add(position, during);
  }
}

double cost_of_steps(const Graph& graph, const std::vector<Step>& steps) {
  double cost = 0;
  IdVector<OpId, char> ran(graph.num_ops(), 0);
  for (const Step& step : steps) {
    if (step.kind() != StepKind::kCompute) continue;
    const VariantId variant = step.variant(graph);
    cost += std::exchange(ran[step.op()], 1) ? graph.rerun_cost(variant) : graph.cost(variant);
  }
  return cost;
}

// Finds out the cost, and whether the plan keeps all limits.
void price(const IntervalSpace& space, bool moves, Bytes budget, IntervalPlan& plan) {
  const Problem& problem = space.problem;
  plan.cost = cost_of_runs(space, plan);
  plan.fits = plan.peak_bytes <= budget && plan.lost.empty();
  if (!plan.fits) return;
  if (moves) {
    const auto simulation = simulate(space.graph, {.steps = plan.steps}, {.link = problem.link});
    plan.fits = simulation.ok() && simulation->peak_bytes <= budget &&
                simulation->host_peak_bytes <= problem.host_budget.value_or(kMaxBytes);
    if (plan.fits) plan.cost = simulation->cost;
  }
  if (problem.cost_cap && plan.cost > *problem.cost_cap) plan.fits = false;
}

}  // namespace

IntervalSpace::IntervalSpace(const Problem& posed)
    : problem(posed), graph(*posed.graph), model(graph, posed.options.recompute_gradients) {
  const RestingValues resting(graph);
  turn = resting.turn();
  for (VariantId v : IdRange<VariantId>(graph.num_variants())) {
    overwrites |= graph.overwrites(v).valid();
  }
  needed_at_end = IdVector<TensorId, char>(graph.num_tensors(), 0);
  bytes_at_end = graph.fixed_bytes();
  for (TensorId t : graph.tensors()) {
    const bool output = !graph.fixed(t) && graph.kind(t) == TensorKind::kOutput;
    needed_at_end[t] = graph.fixed(t) || output;
    if (output) bytes_at_end += graph.bytes(t);
  }
  movable_before.push_back(0);
  for (IntervalId g = 0; g < model.size(); ++g) {
    const ReuseInterval& interval = model.interval(g);
    const auto bytes = static_cast<double>(graph.bytes(interval.tensor));
    if (bytes == 0) continue;
    const std::uint32_t length = interval.end - interval.begin;
    if (model.last(g)) {
      if (model.droppable(g)) sources.push_back(interval.tensor);
      continue;
    }
    if (length <= 1) continue;
    if (model.droppable(g)) inner.push_back(g);
    const bool over = resting.rests(interval.tensor) && interval.begin < turn.index() &&
                      turn.index() <= interval.end;
    if (over) over_turn.push_back(g);
    if (!model.ends_with_read(g)) continue;
    movable.push_back(g);
    const double span = static_cast<double>(length) / static_cast<double>(graph.num_ops());
    movable_before.push_back(movable_before.back() + bytes * (over ? 1 : span));
  }
  std::ranges::stable_sort(over_turn, {}, [&](IntervalId g) {
    return graph.producer(model.interval(g).tensor).index();
  });
}

std::vector<Step> steps_of(const Graph& graph, const IntervalPlan& plan) {
  return plan.steps.empty() ? plan_from_sequence(graph, plan.ops).steps : plan.steps;
}

IntervalPlan evaluate(const IntervalSpace& space, const Decisions& decisions, Bytes budget,
                      const IdVector<TensorId, double>& leads) {
  IntervalSequence sequence = space.model.sequence(decisions);
  IntervalPlan plan{.ops = std::move(sequence.ops),
                    .stage = std::move(sequence.stage),
                    .returned = std::move(sequence.returned),
                    .lost = std::move(sequence.lost)};
  const bool moves = space.problem.link.can_move() && !sequence.absences.empty();
  if (!moves && !space.overwrites) {
    count_bytes_of_ops(space, plan);
    price(space, false, budget, plan);
    return plan;
  }
  std::vector<Step> steps = plan_from_sequence(space.graph, plan.ops).steps;
  if (moves) {
    for (Absence& absence : sequence.absences) {
      if (leads.size() > 0) absence.lead = leads[absence.tensor];
    }
    steps = move_tensors(space.graph, steps, sequence.absences, space.problem.link, budget,
                         space.problem.host_budget.value_or(kMaxBytes))
                .steps;
  }
  count_bytes_of_steps(space.graph, steps, plan);
  if (moves) plan.steps = steps;
  price(space, moves, budget, plan);
  // A variant that overwrites its input may cost less.
  if (!moves) plan.cost = cost_of_steps(space.graph, steps);
  return plan;
}

double cost_of_runs(const IntervalSpace& space, const IntervalPlan& plan) {
  double cost = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const VariantId variant = space.model.variant(plan.ops[i]);
    const bool first = plan.ops[i].index() == plan.stage[i];
    cost += first ? space.graph.cost(variant) : space.graph.rerun_cost(variant);
  }
  return cost;
}

}  // namespace regen::search
