#include "regen/search/local/interval_repair.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "regen/search/build/movement.h"
#include "regen/search/build/sequence.h"
#include "regen/search/local/stage_bytes.h"
#include "regen/search/heuristics/vdnn_rule.h"

namespace regen {
namespace {

constexpr int kRelieveRounds = 60;
constexpr std::ptrdiff_t kFewOver = 100;
constexpr std::size_t kMostStepsPerOp = 30;
constexpr int kDeepestPrice = 10;
// What has become so much dearer since it was looked at waits for its turn again.
constexpr double kDearer = 1.5;

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

}  // namespace

GapSpace::GapSpace(const Problem& posed)
    : problem(posed), graph(*posed.graph), model(graph, posed.options.recompute_gradients) {
  const RestingValues resting(graph);
  turn = resting.turn();
  for (TensorId t : graph.tensors()) {
    if (resting.rests(t)) movable.push_back(t);
  }
  std::ranges::stable_sort(movable, {}, [&](TensorId t) { return graph.producer(t).index(); });
  movable_before.push_back(0);
  for (TensorId t : movable) {
    movable_before.push_back(movable_before.back() + static_cast<double>(graph.bytes(t)));
  }
  for (GapId g = 0; g < model.size(); ++g) {
    const Gap& gap = model.gap(g);
    if (!model.droppable(g) || graph.bytes(gap.tensor) == 0) continue;
    if (model.last(g)) {
      sources.push_back(gap.tensor);
    } else if (gap.end - gap.begin > 1) {
      inner.push_back(g);
    }
  }
}

double GapRepair::blurred(double value, Random& random) const {
  return value * std::exp(blur_ * (random.real() - 0.5));
}

GapPlan GapRepair::evaluate(const GapDecisions& decisions) {
  GapPlan plan;
  const GapSequence sequence = space_.model.sequence(decisions.holdings);
  plan.steps = plan_from_sequence(space_.graph, sequence.ops).steps;
  plan.returned = sequence.returned;
  const bool moves = space_.problem.link.can_move() &&
                     std::ranges::find(decisions.moved.raw(), 1) != decisions.moved.raw().end();
  if (moves) {
    plan.steps =
        move_tensors(space_.graph, plan.steps, space_.turn, decisions.moved, space_.problem.link,
                     *space_.problem.budget, space_.problem.host_budget.value_or(kMaxBytes))
            .steps;
  }
  plan.stage_bytes.assign(space_.graph.num_ops(), 0);
  ByteCount count(space_.graph);
  std::size_t computes = 0;
  for (const Step& step : plan.steps) {
    const Bytes bytes = count.take(step);
    const std::size_t at = std::min(computes, sequence.stage.size() - 1);
    Bytes& most = plan.stage_bytes[sequence.stage[at]];
    most = std::max(most, bytes);
    computes += step.kind() == StepKind::kCompute;
  }
  plan.peak_bytes = std::ranges::max(plan.stage_bytes);
  plan.fits = plan.peak_bytes <= *space_.problem.budget;
  if (plan.fits) price(plan, moves);
  effort_.add(static_cast<std::int64_t>(plan.steps.size()) / 8 + 1);
  return plan;
}

void GapRepair::price(GapPlan& plan, bool moves) const {
  if (moves) {
    const auto simulation =
        simulate(space_.graph, {.steps = plan.steps}, {.link = space_.problem.link});
    plan.fits = simulation.ok() && within_limits(space_.problem, *simulation);
    if (plan.fits) plan.cost = simulation->cost;
    return;
  }
  plan.cost = cost_of_runs(plan);
  plan.fits = !space_.problem.cost_cap || plan.cost <= *space_.problem.cost_cap;
}

double GapRepair::cost_of_runs(const GapPlan& plan) const {
  const Graph& graph = space_.graph;
  double cost = 0;
  IdVector<OpId, char> ran(graph.num_ops(), 0);
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute) continue;
    const VariantId variant = step.variant(graph);
    cost += std::exchange(ran[step.op()], 1) ? graph.rerun_cost(variant) : graph.cost(variant);
  }
  return cost;
}

// What is dropped costs more runs, and holding again what fits takes back some of them, not most.
bool GapRepair::far_beyond_the_cap(const GapPlan& plan) const {
  if (!space_.problem.cost_cap) return false;
  const double base = space_.graph.base_cost();
  const double allowed = *space_.problem.cost_cap - base;
  return cost_of_runs(plan) - base > 2 * std::max(0.0, allowed);
}

// To look at all gaps anew for each op that is over the budget finds more, where those are few.
bool GapRepair::at_once(const GapPlan& plan) const {
  if (space_.large() || !space_.many()) return space_.large();
  const auto over = std::ranges::count_if(
      plan.stage_bytes, [&](Bytes bytes) { return bytes > *space_.problem.budget; });
  return over > kFewOver;
}

// What is dropped makes others run again, and those others: that comes to no good end.
bool GapRepair::runs_away(const GapPlan& plan) const {
  return plan.steps.size() > kMostStepsPerOp * space_.graph.num_ops();
}

bool GapRepair::relieve(GapState& state, Random& random, bool give_up) {
  for (int round = 0; round < kRelieveRounds; ++round) {
    state.plan = evaluate(state.decisions);
    if (state.plan.peak_bytes <= *space_.problem.budget) return state.plan.fits;
    if (give_up && (effort_.exhausted() || runs_away(state.plan))) return false;
    if (far_beyond_the_cap(state.plan)) return false;
    const bool changed =
        at_once(state.plan) ? relieve_all(state, random) : relieve_once(state, random, give_up);
    if (!changed) return false;
  }
  return false;
}

namespace {

// Of each op, and one behind the last: the bytes over the budget at all ops before it.
std::vector<double> sums_of_excess(const std::vector<Bytes>& bytes, Bytes budget) {
  std::vector<double> sums{0};
  for (const Bytes b : bytes) {
    sums.push_back(sums.back() + static_cast<double>(std::max<Bytes>(0, b - budget)));
  }
  return sums;
}

}  // namespace

// Goes from the worst op to the next as long as the bytes are too many, by an estimate of what each
// drop takes away. False if nothing could be dropped.
bool GapRepair::relieve_once(GapState& state, Random& random, bool give_up) {
  std::vector<Bytes> bytes = state.plan.stage_bytes;
  const Bytes budget = *space_.problem.budget;
  const std::vector<double> excess_before = sums_of_excess(bytes, budget);
  std::size_t changed = 0;
  std::vector<char> hopeless(bytes.size(), 0);
  for (;;) {
    std::uint32_t worst = 0;
    Bytes most = budget;
    for (std::uint32_t s = 0; s < bytes.size(); ++s) {
      if (!hopeless[s] && bytes[s] > most) {
        most = bytes[s];
        worst = s;
      }
    }
    if (most == budget) break;
    if (give_up && effort_.exhausted()) return false;
    const std::size_t dropped = drop_across(worst, state, bytes, excess_before, random);
    changed += dropped;
    if (dropped == 0 || bytes[worst] > budget) hopeless[worst] = 1;
  }
  if (changed > 0) return true;
  const auto peak =
      std::ranges::max_element(state.plan.stage_bytes) - state.plan.stage_bytes.begin();
  return make_anew_across(static_cast<std::uint32_t>(peak), state) > 0;
}

double GapRepair::gain(GapId g, const std::vector<double>& excess_before) const {
  const Gap& gap = space_.model.gap(g);
  const double excess = excess_before[gap.end] - excess_before[gap.begin + 1];
  return static_cast<double>(space_.graph.bytes(gap.tensor)) * std::sqrt(1 + excess);
}

ReliefQueue GapRepair::droppable_where_over(const GapState& state,
                                            const std::vector<double>& excess_before,
                                            Random& random) {
  ReliefQueue queue(space_.graph.num_ops(), space_.model.size());
  std::int64_t priced = 0;
  for (const GapId g : space_.inner) {
    const Gap& gap = space_.model.gap(g);
    if (state.decisions.holdings[g] != Holding::kHeld) continue;
    if (excess_before[gap.end] <= excess_before[gap.begin + 1]) continue;
    const double price = price_of_dropping(g, state.decisions.holdings);
    queue.add({blurred(price / gain(g, excess_before), random), g}, gap.begin + 1, gap.end);
    ++priced;
  }
  effort_.add(static_cast<std::int64_t>(space_.inner.size()) / 64 + priced / 4 + 1);
  return queue;
}

// The same as relieve_once() for graphs with very many ops: prices are found once, and again when
// it is a gap's turn, because what it is made from may have been dropped since.
bool GapRepair::relieve_all(GapState& state, Random& random) {
  const Bytes budget = *space_.problem.budget;
  const std::vector<double> excess_before = sums_of_excess(state.plan.stage_bytes, budget);
  ReliefQueue queue = droppable_where_over(state, excess_before, random);
  StageBytes bytes(state.plan.stage_bytes);
  Holdings& holdings = state.decisions.holdings;
  std::vector<double> price(space_.model.size(), 0);  // at the last look
  std::int64_t taken = 0;
  bool changed = false;
  for (auto [most, stage] = bytes.peak(); most > budget; std::tie(most, stage) = bytes.peak()) {
    const auto entry = queue.take(stage);
    if (!entry) {
      bytes.add(stage, stage + 1, budget - most);  // nothing can be done here
      continue;
    }
    ++taken;
    const Gap& gap = space_.model.gap(entry->gap);
    const double now = price_of_dropping(entry->gap, holdings) / gain(entry->gap, excess_before);
    double& before = price[entry->gap];
    if (now > kDearer * std::max(before, entry->score)) {
      before = now;
      queue.add({now, entry->gap}, gap.begin + 1, gap.end);
      continue;
    }
    holdings[entry->gap] = Holding::kDropped;
    bytes.add(gap.begin + 1, gap.end, -space_.graph.bytes(gap.tensor));
    changed = true;
  }
  effort_.add(taken / 4 + 1);
  if (changed) return true;
  const auto peak =
      std::ranges::max_element(state.plan.stage_bytes) - state.plan.stage_bytes.begin();
  return make_anew_across(static_cast<std::uint32_t>(peak), state) > 0;
}

std::vector<GapRepair::Relief> GapRepair::reliefs(std::uint32_t stage, const GapState& state,
                                                  const std::vector<double>& excess_before,
                                                  Random& random) {
  std::vector<Relief> found;
  const Holdings& holdings = state.decisions.holdings;
  for (const GapId g : space_.inner) {
    if (!crosses(g, stage) || holdings[g] != Holding::kHeld) continue;
    const double score = price_of_dropping(g, holdings) / gain(g, excess_before);
    found.push_back({blurred(score, random), {g}, {}});
  }
  for (const TensorId source : space_.sources) {
    auto relief = relief_by_source(source, stage, state);
    if (!relief) continue;
    const Gap& gap = space_.model.gap(relief->dropped.front());
    const double excess = excess_before[gap.end] - excess_before[gap.begin + 1];
    relief->score = blurred(relief->score / std::sqrt(1 + excess), random);
    found.push_back(std::move(*relief));
  }
  effort_.add(static_cast<std::int64_t>(space_.inner.size() + space_.sources.size()) / 32 + 1);
  std::ranges::sort(found, {}, &Relief::score);
  return found;
}

// All that is made from the source and held at the stage goes; the source stays in its place.
std::optional<GapRepair::Relief> GapRepair::relief_by_source(TensorId source, std::uint32_t stage,
                                                             const GapState& state) {
  const Holdings& holdings = state.decisions.holdings;
  const GapId own = space_.model.gaps_of(source).back();
  if (space_.model.gap(own).begin >= stage) return std::nullopt;
  const bool held = holdings[own] == Holding::kHeld;
  Relief relief;
  Bytes gain = held ? 0 : -space_.graph.bytes(source);
  double price = 0;
  for (OpId reader : space_.graph.consumers(source)) {
    bool drops = false;
    for (TensorId t : space_.graph.makes(base_variant(space_.graph, reader))) {
      if (space_.graph.fixed(t) || space_.graph.bytes(t) == 0) continue;
      const GapId g = space_.model.gap_at(t, stage);
      if (!crosses(g, stage) || space_.model.last(g) || !space_.model.droppable(g)) continue;
      if (holdings[g] != Holding::kHeld) continue;
      relief.dropped.push_back(g);
      gain += space_.graph.bytes(t);
      drops = true;
    }
    if (drops) price += space_.graph.rerun_cost(base_variant(space_.graph, reader));
  }
  if (gain <= 0 || relief.dropped.empty()) return std::nullopt;
  if (!held) relief.held = own;
  relief.score = price / static_cast<double>(gain);
  return relief;
}

std::size_t GapRepair::drop_across(std::uint32_t stage, GapState& state, std::vector<Bytes>& bytes,
                                   const std::vector<double>& excess_before, Random& random) {
  std::size_t dropped = 0;
  for (const Relief& relief : reliefs(stage, state, excess_before, random)) {
    if (bytes[stage] <= *space_.problem.budget) break;
    Holdings& holdings = state.decisions.holdings;
    // Another choice may have taken a part of this one.
    const bool whole =
        std::ranges::all_of(relief.dropped, [&](GapId g) { return holdings[g] == Holding::kHeld; });
    if (!whole) continue;
    std::uint32_t end = 0;
    for (const GapId g : relief.dropped) {
      const Gap& gap = space_.model.gap(g);
      holdings[g] = Holding::kDropped;
      for (std::uint32_t s = gap.begin + 1; s < gap.end; ++s)
        bytes[s] -= space_.graph.bytes(gap.tensor);
      end = std::max(end, gap.end);
    }
    if (relief.held) {
      const Gap& gap = space_.model.gap(*relief.held);
      holdings[*relief.held] = Holding::kHeld;
      for (std::uint32_t s = gap.begin + 1; s < end; ++s)
        bytes[s] += space_.graph.bytes(gap.tensor);
    }
    ++dropped;
  }
  return dropped;
}

// What is held there although its gap is dropped: made again for somebody else, and waiting.
std::size_t GapRepair::make_anew_across(std::uint32_t stage, GapState& state) {
  std::size_t changed = 0;
  for (const GapId g : space_.inner) {
    const Gap& gap = space_.model.gap(g);
    if (gap.begin >= stage || gap.end <= stage) continue;
    if (state.decisions.holdings[g] != Holding::kDropped) continue;
    state.decisions.holdings[g] = Holding::kNever;
    ++changed;
  }
  // And what is of no further use but for running others again.
  for (const TensorId t : space_.sources) {
    const GapId g = space_.model.gaps_of(t).back();
    if (space_.model.gap(g).begin >= stage || state.decisions.holdings[g] == Holding::kNever)
      continue;
    state.decisions.holdings[g] = Holding::kNever;
    ++changed;
  }
  return changed;
}

void GapRepair::refill(GapState& state, Random& random) {
  GapState fuller = state;
  StageBytes bytes(state.plan.stage_bytes);
  std::vector<std::pair<double, GapId>> dropped;
  for (const GapId g : space_.inner) {
    if (state.decisions.holdings[g] == Holding::kHeld) continue;
    const double price = price_of_dropping(g, state.decisions.holdings);
    dropped.emplace_back(
        -blurred(price / static_cast<double>(space_.graph.bytes(space_.model.gap(g).tensor)),
                 random),
        g);
  }
  std::ranges::sort(dropped);
  std::size_t held = 0;
  for (const auto& [score, g] : dropped) {
    const Gap& gap = space_.model.gap(g);
    const Bytes size = space_.graph.bytes(gap.tensor);
    // From when it comes back it is there anyway.
    const std::uint32_t first = gap.begin + 1;
    const std::uint32_t returned = state.plan.returned[g];
    if (first >= returned || bytes.most(first, returned) + size > *space_.problem.budget) continue;
    bytes.add(first, returned, size);
    fuller.decisions.holdings[g] = Holding::kHeld;
    ++held;
  }
  if (held == 0) return;
  fuller.plan = evaluate(fuller.decisions);
  if (fuller.plan.fits && fuller.plan.cost < state.plan.cost) state = std::move(fuller);
}

double GapRepair::price_of_dropping(GapId g, const Holdings& holdings) {
  ++round_;
  const Gap& gap = space_.model.gap(g);
  return rerun_price(space_.graph.producer(gap.tensor), gap.end, holdings, 0);
}

// What it takes to have an op's values at a later op, by what is held there; an estimate, because
// what is dropped there may have come back before.
double GapRepair::rerun_price(OpId op, std::uint32_t at, const Holdings& holdings, int depth) {
  if (mark_[op] == round_) return 0;
  mark_[op] = round_;
  const VariantId variant = base_variant(space_.graph, op);
  double price = space_.graph.rerun_cost(variant);
  if (depth == kDeepestPrice) return price;
  for (TensorId t : space_.graph.reads(variant)) {
    if (space_.graph.fixed(t)) continue;
    const GapId g = space_.model.gap_at(t, at);
    const bool held = !space_.model.droppable(g) || holdings[g] == Holding::kHeld;
    if (!held) price += rerun_price(space_.graph.producer(t), at, holdings, depth + 1);
  }
  return price;
}

}  // namespace regen
