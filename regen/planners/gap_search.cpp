#include "regen/planners/gap_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "regen/planners/movement.h"
#include "regen/planners/recompute.h"
#include "regen/planners/vdnn_rule.h"

namespace regen {
namespace {

constexpr int kRelieveRounds = 60;
constexpr int kDeepestPrice = 10;
constexpr int kCycle = 500;          // tries before the search goes back to the best
constexpr int kRoundsPerIsland = 2;  // before the worst is left alone
constexpr std::size_t kMostIslands = 6;
constexpr double kHeat = 0.06;  // of the overhead: how much worse may be for a while

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

double GapSearch::blurred(double value, Random& random) const {
  return value * std::exp(blur_ * (random.real() - 0.5));
}

GapSearch::GapSearch(const Problem& problem, Effort& effort)
    : problem_(problem),
      graph_(*problem.graph),
      effort_(effort),
      model_(*problem.graph, problem.options.recompute_gradients),
      mark_(problem.graph->num_ops(), 0) {
  const RestingValues resting(graph_);
  turn_ = resting.turn();
  for (TensorId t : graph_.tensors()) {
    if (resting.rests(t)) movable_.push_back(t);
  }
  std::ranges::stable_sort(movable_, {}, [&](TensorId t) { return graph_.producer(t).index(); });
  for (GapId g = 0; g < model_.size(); ++g) {
    const bool has_bytes = graph_.bytes(model_.gap(g).tensor) > 0;
    if (model_.droppable(g) && !model_.last(g) && has_bytes &&
        model_.gap(g).end - model_.gap(g).begin > 1) {
      inner_.push_back(g);
    }
    if (model_.droppable(g) && model_.last(g) && has_bytes) {
      sources_.push_back(model_.gap(g).tensor);
    }
  }
}

GapPlan GapSearch::evaluate(const GapDecisions& decisions) {
  GapPlan plan;
  const GapSequence sequence = model_.sequence(decisions.holdings);
  plan.steps = plan_from_sequence(graph_, sequence.ops).steps;
  plan.returned = sequence.returned;
  const bool moves = problem_.link.can_move() &&
                     std::ranges::find(decisions.moved.raw(), 1) != decisions.moved.raw().end();
  if (moves) {
    plan.steps =
        move_tensors(graph_, plan.steps, turn_, decisions.moved, problem_.link, *problem_.budget)
            .steps;
  }
  plan.stage_bytes.assign(graph_.num_ops(), 0);
  ByteCount count(graph_);
  std::size_t computes = 0;
  for (const Step& step : plan.steps) {
    const Bytes bytes = count.take(step);
    const std::size_t at = std::min(computes, sequence.stage.size() - 1);
    Bytes& most = plan.stage_bytes[sequence.stage[at]];
    most = std::max(most, bytes);
    computes += step.kind() == StepKind::kCompute;
  }
  plan.peak_bytes = std::ranges::max(plan.stage_bytes);
  plan.fits = plan.peak_bytes <= *problem_.budget;
  if (plan.fits) price(plan, moves);
  effort_.add(static_cast<std::int64_t>(plan.steps.size()) / 8 + 1);
  return plan;
}

void GapSearch::price(GapPlan& plan, bool moves) const {
  if (moves) {
    const auto simulation = simulate(graph_, {.steps = plan.steps}, {.link = problem_.link});
    plan.fits = simulation.ok() && within_limits(problem_, *simulation);
    if (plan.fits) plan.cost = simulation->cost;
    return;
  }
  plan.cost = cost_of_runs(plan);
  plan.fits = !problem_.cost_cap || plan.cost <= *problem_.cost_cap;
}

double GapSearch::cost_of_runs(const GapPlan& plan) const {
  double cost = 0;
  IdVector<OpId, char> ran(graph_.num_ops(), 0);
  for (const Step& step : plan.steps) {
    if (step.kind() != StepKind::kCompute) continue;
    const VariantId variant = step.variant(graph_);
    cost += std::exchange(ran[step.op()], 1) ? graph_.rerun_cost(variant) : graph_.cost(variant);
  }
  return cost;
}

// What is dropped costs more runs, and holding again what fits takes back some of them, not most.
bool GapSearch::far_beyond_the_cap(const GapPlan& plan) const {
  if (!problem_.cost_cap) return false;
  const double allowed = *problem_.cost_cap - graph_.base_cost();
  return cost_of_runs(plan) - graph_.base_cost() > 2 * std::max(0.0, allowed);
}

void GapSearch::offer(const State& state) {
  if (!state.plan.fits || (best_ && best_->cost <= state.plan.cost)) return;
  best_ = state.plan;
  if (problem_.observer) problem_.observer(effort_.seconds(), best_->cost, 0);
}

void GapSearch::add_island(State state) {
  if (!state.plan.fits) return;
  offer(state);
  for (const Island& island : islands_) {
    if (island.current.plan.cost == state.plan.cost) return;
  }
  islands_.push_back({state, state});
}

double GapSearch::forward_cost() const {
  double sum = 0;
  for (OpId op : graph_.ops()) {
    if (turn_.valid() && op < turn_) sum += graph_.cost(base_variant(graph_, op));
  }
  return sum;
}

void GapSearch::start() {
  Random random(1);
  for (const double share : {0.0, 1.0, 0.5, 1.5, 2.5}) {
    if (share > 0 && (!problem_.link.can_move() || movable_.empty())) break;
    if (best_ && effort_.exhausted()) break;
    State state;
    state.decisions.holdings = model_.keep_everything();
    state.decisions.moved =
        early_values(static_cast<Bytes>(share * forward_cost() * problem_.link.to_host));
    if (relieve(state, random)) refill(state, random);
    add_island(std::move(state));
  }
}

void GapSearch::start_from(const Plan& plan) {
  State state;
  if (!model_.read_plan(plan, state.decisions.holdings, state.decisions.moved)) return;
  Random random(1);
  if (relieve(state, random)) refill(state, random);
  add_island(std::move(state));
}

void GapSearch::start_from_hints(const std::vector<double>& again) {
  const GapPlan kept = evaluate({model_.keep_everything(), early_values(0)});
  std::vector<std::uint32_t> over_before{0};  // how many ops are over the budget
  for (const Bytes b : kept.stage_bytes)
    over_before.push_back(over_before.back() + (b > *problem_.budget));
  Random random(1);
  for (const double threshold : {0.5, 0.95, 0.05}) {
    for (const double share : {0.0, 0.5, 1.0}) {
      if (share > 0 && (!problem_.link.can_move() || movable_.empty())) break;
      if (effort_.exhausted()) return;
      State state;
      state.decisions.holdings = model_.keep_everything();
      state.decisions.moved =
          early_values(static_cast<Bytes>(share * forward_cost() * problem_.link.to_host));
      for (const GapId g : inner_) {
        const Gap& gap = model_.gap(g);
        const bool helps = over_before[gap.end] > over_before[gap.begin + 1];
        const bool hinted = again[graph_.producer(gap.tensor).index()] > threshold;
        if (helps && hinted && !state.decisions.moved[gap.tensor]) {
          state.decisions.holdings[g] = Holding::kDropped;
        }
      }
      if (relieve(state, random)) refill(state, random);
      add_island(std::move(state));
    }
  }
}

// The first values, as many as have these bytes: they have the most time to travel.
IdVector<TensorId, char> GapSearch::early_values(Bytes bytes) const {
  IdVector<TensorId, char> moved(graph_.num_tensors(), 0);
  for (TensorId t : movable_) {
    bytes -= graph_.bytes(t);
    if (bytes < 0) break;
    moved[t] = 1;
  }
  return moved;
}

bool GapSearch::relieve(State& state, Random& random) {
  for (int round = 0; round < kRelieveRounds; ++round) {
    state.plan = evaluate(state.decisions);
    if (state.plan.peak_bytes <= *problem_.budget) return state.plan.fits;
    if (effort_.exhausted() && best_) return false;
    if (far_beyond_the_cap(state.plan)) return false;
    if (!relieve_once(state, random)) return false;
  }
  return false;
}

// Goes from the worst op to the next as long as the bytes are too many, by an estimate of what each
// drop takes away. False if nothing could be dropped.
bool GapSearch::relieve_once(State& state, Random& random) {
  std::vector<Bytes> bytes = state.plan.stage_bytes;
  const Bytes budget = *problem_.budget;
  std::vector<double> excess_before{0};
  for (const Bytes b : bytes) {
    excess_before.push_back(excess_before.back() +
                            static_cast<double>(std::max<Bytes>(0, b - budget)));
  }
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
    const std::size_t dropped = drop_across(worst, state, bytes, excess_before, random);
    changed += dropped;
    if (dropped == 0 || bytes[worst] > budget) hopeless[worst] = 1;
  }
  if (changed > 0) return true;
  const auto peak =
      std::ranges::max_element(state.plan.stage_bytes) - state.plan.stage_bytes.begin();
  return make_anew_across(static_cast<std::uint32_t>(peak), state) > 0;
}

std::vector<GapSearch::Relief> GapSearch::reliefs(std::uint32_t stage, const State& state,
                                                  const std::vector<double>& excess_before,
                                                  Random& random) {
  std::vector<Relief> found;
  const Holdings& holdings = state.decisions.holdings;
  for (const GapId g : inner_) {
    if (!crosses(g, stage) || holdings[g] != Holding::kHeld) continue;
    const Gap& gap = model_.gap(g);
    const double excess = excess_before[gap.end] - excess_before[gap.begin + 1];
    const double gain = static_cast<double>(graph_.bytes(gap.tensor)) * std::sqrt(1 + excess);
    found.push_back({blurred(price_of_dropping(g, holdings) / gain, random), {g}, {}});
  }
  for (const TensorId source : sources_) {
    auto relief = relief_by_source(source, stage, state);
    if (!relief) continue;
    const Gap& gap = model_.gap(relief->dropped.front());
    const double excess = excess_before[gap.end] - excess_before[gap.begin + 1];
    relief->score = blurred(relief->score / std::sqrt(1 + excess), random);
    found.push_back(std::move(*relief));
  }
  effort_.add(static_cast<std::int64_t>(inner_.size() + sources_.size()) / 32 + 1);
  std::ranges::sort(found, {}, &Relief::score);
  return found;
}

// All that is made from the source and held at the stage goes; the source stays in its place.
std::optional<GapSearch::Relief> GapSearch::relief_by_source(TensorId source, std::uint32_t stage,
                                                             const State& state) {
  const Holdings& holdings = state.decisions.holdings;
  const GapId own = model_.gaps_of(source).back();
  if (model_.gap(own).begin >= stage) return std::nullopt;
  const bool held = holdings[own] == Holding::kHeld;
  Relief relief;
  Bytes gain = held ? 0 : -graph_.bytes(source);
  double price = 0;
  for (OpId reader : graph_.consumers(source)) {
    bool drops = false;
    for (TensorId t : graph_.makes(base_variant(graph_, reader))) {
      if (graph_.fixed(t) || graph_.bytes(t) == 0) continue;
      const GapId g = model_.gap_at(t, stage);
      if (!crosses(g, stage) || model_.last(g) || !model_.droppable(g)) continue;
      if (holdings[g] != Holding::kHeld) continue;
      relief.dropped.push_back(g);
      gain += graph_.bytes(t);
      drops = true;
    }
    if (drops) price += graph_.rerun_cost(base_variant(graph_, reader));
  }
  if (gain <= 0 || relief.dropped.empty()) return std::nullopt;
  if (!held) relief.held = own;
  relief.score = price / static_cast<double>(gain);
  return relief;
}

std::size_t GapSearch::drop_across(std::uint32_t stage, State& state, std::vector<Bytes>& bytes,
                                   const std::vector<double>& excess_before, Random& random) {
  std::size_t dropped = 0;
  for (const Relief& relief : reliefs(stage, state, excess_before, random)) {
    if (bytes[stage] <= *problem_.budget) break;
    Holdings& holdings = state.decisions.holdings;
    // Another choice may have taken a part of this one.
    const bool whole =
        std::ranges::all_of(relief.dropped, [&](GapId g) { return holdings[g] == Holding::kHeld; });
    if (!whole) continue;
    std::uint32_t end = 0;
    for (const GapId g : relief.dropped) {
      const Gap& gap = model_.gap(g);
      holdings[g] = Holding::kDropped;
      for (std::uint32_t s = gap.begin + 1; s < gap.end; ++s) bytes[s] -= graph_.bytes(gap.tensor);
      end = std::max(end, gap.end);
    }
    if (relief.held) {
      const Gap& gap = model_.gap(*relief.held);
      holdings[*relief.held] = Holding::kHeld;
      for (std::uint32_t s = gap.begin + 1; s < end; ++s) bytes[s] += graph_.bytes(gap.tensor);
    }
    ++dropped;
  }
  return dropped;
}

// What is held there although its gap is dropped: made again for somebody else, and waiting.
std::size_t GapSearch::make_anew_across(std::uint32_t stage, State& state) {
  std::size_t changed = 0;
  for (const GapId g : inner_) {
    const Gap& gap = model_.gap(g);
    if (gap.begin >= stage || gap.end <= stage) continue;
    if (state.decisions.holdings[g] != Holding::kDropped) continue;
    state.decisions.holdings[g] = Holding::kNever;
    ++changed;
  }
  // And what is of no further use but for running others again.
  for (const TensorId t : sources_) {
    const GapId g = model_.gaps_of(t).back();
    if (model_.gap(g).begin >= stage || state.decisions.holdings[g] == Holding::kNever) continue;
    state.decisions.holdings[g] = Holding::kNever;
    ++changed;
  }
  return changed;
}

void GapSearch::refill(State& state, Random& random) {
  State fuller = state;
  std::vector<Bytes>& bytes = fuller.plan.stage_bytes;
  std::vector<std::pair<double, GapId>> dropped;
  for (const GapId g : inner_) {
    if (state.decisions.holdings[g] == Holding::kHeld) continue;
    const double price = price_of_dropping(g, state.decisions.holdings);
    dropped.emplace_back(
        -blurred(price / static_cast<double>(graph_.bytes(model_.gap(g).tensor)), random), g);
  }
  std::ranges::sort(dropped);
  std::size_t held = 0;
  for (const auto& [score, g] : dropped) {
    const Gap& gap = model_.gap(g);
    const Bytes size = graph_.bytes(gap.tensor);
    // From when it comes back it is there anyway.
    const auto span =
        std::span(bytes).subspan(gap.begin + 1, state.plan.returned[g] - gap.begin - 1);
    if (span.empty() || std::ranges::max(span) + size > *problem_.budget) continue;
    for (Bytes& b : span) b += size;
    fuller.decisions.holdings[g] = Holding::kHeld;
    ++held;
  }
  if (held == 0) return;
  fuller.plan = evaluate(fuller.decisions);
  if (fuller.plan.fits && fuller.plan.cost < state.plan.cost) state = std::move(fuller);
}

double GapSearch::price_of_dropping(GapId g, const Holdings& holdings) {
  ++round_;
  const Gap& gap = model_.gap(g);
  return rerun_price(graph_.producer(gap.tensor), gap.end, holdings, 0);
}

// What it takes to have an op's values at a later op, by what is held there; an estimate, because
// what is dropped there may have come back before.
double GapSearch::rerun_price(OpId op, std::uint32_t at, const Holdings& holdings, int depth) {
  if (mark_[op] == round_) return 0;
  mark_[op] = round_;
  const VariantId variant = base_variant(graph_, op);
  double price = graph_.rerun_cost(variant);
  if (depth == kDeepestPrice) return price;
  for (TensorId t : graph_.reads(variant)) {
    if (graph_.fixed(t)) continue;
    const GapId g = model_.gap_at(t, at);
    const bool held = !model_.droppable(g) || holdings[g] == Holding::kHeld;
    if (!held) price += rerun_price(graph_.producer(t), at, holdings, depth + 1);
  }
  return price;
}

void GapSearch::improve(std::uint64_t seed, double good_enough) {
  if (islands_.empty() || inner_.empty()) return;
  Random random(seed);
  // The more there is to decide, the longer it may take to find something better.
  const int patience = static_cast<int>(std::min<std::size_t>(100 + 20 * inner_.size(), 40'000));
  const auto cost = [](const Island& island) { return island.best.plan.cost; };
  std::ranges::stable_sort(islands_, {}, cost);
  if (islands_.size() > kMostIslands) islands_.resize(kMostIslands);
  for (int round = 0; !effort_.exhausted() && best_->cost > good_enough; ++round) {
    for (Island& island : islands_) explore(island, kCycle, good_enough, random);
    std::ranges::stable_sort(islands_, {}, cost);
    const bool crowded = islands_.size() > 1 && round % kRoundsPerIsland == kRoundsPerIsland - 1;
    if (crowded) islands_.pop_back();
    if (islands_.size() == 1 && islands_[0].since_best > patience) break;
  }
}

void GapSearch::explore(Island& island, int tries, double good_enough, Random& random) {
  constexpr std::array<double, 4> kBlurs{0.3, 1, 2, 4};
  island.current = island.best;
  for (int i = 0; i < tries && !effort_.exhausted() && best_->cost > good_enough; ++i) {
    State next = island.current;
    blur_ = kBlurs[static_cast<std::size_t>(random.between(0, 3))];
    perturb(next, random);
    ++island.since_best;
    if (!relieve(next, random)) continue;
    refill(next, random);
    offer(next);
    if (next.plan.cost < island.best.plan.cost * (1 - 1e-12)) {
      island.since_best = 0;
      island.best = next;
    }
    // Tolerates less and less that is worse.
    const double overhead = island.best.plan.cost / graph_.base_cost() - 1;
    const double heat = kHeat * (1.0 - static_cast<double>(i) / tries);
    const double tolerance = heat * random.real() * overhead;
    if (next.plan.cost <= island.current.plan.cost * (1 + tolerance))
      island.current = std::move(next);
  }
}

void GapSearch::perturb(State& state, Random& random) {
  const bool can_move = problem_.link.can_move() && !movable_.empty();
  if (can_move && random.chance(0.3)) change_movement(state, random);
  hold_some(state, random);
}

// Dropped values near each other are held again; others will have to go.
void GapSearch::hold_some(State& state, Random& random) {
  const auto ops = static_cast<std::int64_t>(graph_.num_ops());
  const std::int64_t width = std::max<std::int64_t>(4, ops >> random.between(0, 7));
  const std::int64_t low = random.between(-width / 2, ops - 1);
  constexpr std::array<double, 4> kShares{0.03, 0.1, 0.3, 1};
  const double share = kShares[static_cast<std::size_t>(random.between(0, 3))];
  for (const GapId g : inner_) {
    const Gap& gap = model_.gap(g);
    if (gap.begin < low || gap.begin > low + width || !random.chance(share)) continue;
    Holding& holding = state.decisions.holdings[g];
    if (holding != Holding::kHeld) {
      holding = Holding::kHeld;
    } else if (random.chance(0.05)) {
      holding = random.chance(0.8) ? Holding::kDropped : Holding::kNever;
    }
  }
  for (const TensorId t : sources_) {
    const GapId g = model_.gaps_of(t).back();
    if (model_.gap(g).begin < low || model_.gap(g).begin > low + width || !random.chance(share))
      continue;
    state.decisions.holdings[g] = random.chance(0.9) ? Holding::kDropped : Holding::kNever;
  }
}

void GapSearch::change_movement(State& state, Random& random) {
  const std::int64_t changes = random.between(1, 4);
  for (std::int64_t i = 0; i < changes; ++i) {
    const auto which = random.between(0, static_cast<std::int64_t>(movable_.size()) - 1);
    const TensorId t = movable_[static_cast<std::size_t>(which)];
    state.decisions.moved[t] = !state.decisions.moved[t];
    if (!state.decisions.moved[t]) continue;
    for (const GapId g : model_.gaps_of(t)) {
      if (!model_.last(g)) state.decisions.holdings[g] = Holding::kHeld;
    }
  }
}

}  // namespace regen
