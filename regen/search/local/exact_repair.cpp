#include "regen/search/local/exact_repair.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "regen/base/tolerance.h"

namespace regen::search {
namespace {

// So many changes that cost little for their bytes are evaluated first, the others only if none of
// these helps.
constexpr std::size_t kChangesTried = 16;
// The same where there are many ops, each time that none has helped yet: an evaluation takes longer
// there (experiments/before_after.py, development networks of more than 1,000 ops).
constexpr std::size_t kChangesTriedOfMany = 8;
// Changes at random, where none helps alone: one may make another possible.
constexpr int kMaxEscapes = 12;
// A change is taken after others if its price has grown by at most this factor.
constexpr double kDearerFactor = 1.5;
constexpr int kMaxHoldingRounds = 8;
constexpr double kBlindTrialProbability = 0.05;
// Of the mean cost of an op, in addition to what a change costs: of changes that cost nothing the
// one that frees most is the cheapest.
constexpr double kCostOfAnyChange = 1e-6;
// How many stages before its use a value is recomputed, one after the other.
constexpr std::uint32_t kStagesAhead[] = {1, 2, 4};
constexpr std::uint32_t kNoStage = std::numeric_limits<std::uint32_t>::max();

// In ascending order.
std::span<const OpId> runs_of_stage(const IntervalPlan& plan, std::uint32_t stage) {
  const auto begin = std::ranges::lower_bound(plan.stage, stage) - plan.stage.begin();
  const auto end = std::ranges::upper_bound(plan.stage, stage) - plan.stage.begin();
  return {plan.ops.begin() + begin, plan.ops.begin() + end};
}

void shuffle(std::vector<std::size_t>& order, Random& random) {
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::int64_t other = random.between(0, static_cast<std::int64_t>(i) - 1);
    std::swap(order[i - 1], order[static_cast<std::size_t>(other)]);
  }
}

}  // namespace

void ExactRepair::Change::apply(Decisions& decisions) const {
  if (early_drop) {
    decisions.add(*early_drop);
  } else {
    decisions[interval] = holding;
  }
  if (early_run) decisions.add(*early_run);
}

// Where an output may come back before the op that awaits it: the stages up to which what it is made
// of is there, or can be made again.
std::vector<std::uint32_t> ExactRepair::return_stages(IntervalId g, std::uint32_t after) const {
  const IntervalModel& model = space_.model;
  const ReuseInterval& interval = model.interval(g);
  std::vector<std::uint32_t> stages;
  if (model.ends_with_read(g) || model.last(g)) return stages;
  for (TensorId t : model.reads(space_.graph.producer(interval.tensor))) {
    stages.push_back(model.interval(model.intervals_of(t).back()).begin);
    stages.push_back(model.last_rerun(space_.graph.producer(t)));
  }
  std::erase_if(stages, [&](std::uint32_t s) { return s <= after || s >= interval.end; });
  std::ranges::sort(stages);
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  return stages;
}

double ExactRepair::overflow(const IntervalPlan& plan) const {
  double sum = 0;
  for (const Bytes bytes : plan.stage_bytes) {
    sum += static_cast<double>(std::max<Bytes>(0, bytes - budget_));
  }
  return sum;
}

// The worst position of a stage above the budget: mostly the worst of all, at times another, so that
// the repair does not always work at the same place.
std::uint32_t ExactRepair::position_over_budget(const IntervalPlan& plan, Random& random) const {
  const auto peak = std::ranges::max_element(plan.stage_bytes) - plan.stage_bytes.begin();
  auto chosen = static_cast<std::size_t>(peak);
  if (random.between(0, 3) == 0) {
    std::int64_t seen = 0;
    for (std::size_t stage = 0; stage < plan.stage_bytes.size(); ++stage) {
      if (plan.stage_bytes[stage] > budget_ && random.between(0, seen++) == 0) chosen = stage;
    }
  }
  return plan.worst[chosen];
}

// For each value that waits at the position: to drop or to move it between its last use before and
// its next use after.
std::vector<ExactRepair::Change> ExactRepair::changes_at(std::uint32_t position,
                                                         const IntervalState& state) const {
  const Graph& graph = space_.graph;
  const IntervalPlan& plan = state.plan;
  IdVector<TensorId, std::uint32_t> next_use(graph.num_tensors(), kNoStage);
  for (TensorId t : graph.tensors()) {
    if (!graph.fixed(t) && graph.kind(t) == TensorKind::kOutput) {
      next_use[t] = static_cast<std::uint32_t>(graph.num_ops() - 1);
    }
  }
  for (std::size_t at = plan.ops.size(); --at > position;) {
    const VariantId variant = space_.model.variant(plan.ops[at]);
    for (TensorId t : graph.makes(variant)) next_use[t] = kNoStage;
    for (TensorId t : graph.reads(variant)) next_use[t] = plan.stage[at];
    if (plan.ops[at].index() != plan.stage[at]) continue;
    for (TensorId t : space_.model.awaits(plan.ops[at])) next_use[t] = plan.stage[at];
  }
  const VariantId present = space_.model.variant(plan.ops[position]);
  for (TensorId t : graph.makes(present)) next_use[t] = kNoStage;
  for (TensorId t : graph.reads(present)) next_use[t] = kNoStage;
  std::vector<Change> changes;
  for (std::size_t at = position; at-- > 0;) {
    const VariantId variant = space_.model.variant(plan.ops[at]);
    const auto consider = [&](TensorId t) {
      const std::uint32_t wanted = std::exchange(next_use[t], kNoStage);
      if (wanted == kNoStage || graph.fixed(t) || graph.bytes(t) == 0) return;
      if (plan.stage[at] >= wanted) return;
      add_changes(t, plan.stage[at], plan.stage[position], wanted, state.decisions, changes);
    };
    for (TensorId t : graph.makes(variant)) consider(t);
    for (TensorId t : graph.reads(variant)) consider(t);
  }
  std::ranges::stable_sort(changes, {}, [&](const Change& change) {
    const OpId maker = graph.producer(change.tensor);
    return graph.rerun_cost(space_.model.variant(maker)) /
           static_cast<double>(graph.bytes(change.tensor));
  });
  return changes;
}

void ExactRepair::add_changes(TensorId t, std::uint32_t touched, std::uint32_t position_stage,
                              std::uint32_t wanted, const Decisions& decisions,
                              std::vector<Change>& changes) const {
  const IntervalId g = space_.model.interval_at(t, wanted);
  if (space_.model.droppable(g)) {
    const bool from_its_begin = touched == space_.model.interval(g).begin;
    if (from_its_begin && is_resident(decisions[g])) {
      changes.push_back({t, g, Holding::kDropped, {}, wanted, {}});
      for (const std::uint32_t stage : return_stages(g, position_stage)) {
        changes.push_back({t, g, Holding::kDropped, {}, stage, EarlyRun{stage, t}});
      }
    } else {
      changes.push_back({t, g, Holding::kDropped, EarlyDrop{touched + 1, t}, wanted, {}});
    }
  }
  if (space_.can_move() && space_.model.ends_with_read(g) && decisions[g] == Holding::kHeld) {
    changes.push_back({t, g, Holding::kMoved, {}, wanted, {}});
  }
}

// Ops that the change makes run again at the value's next use leave nothing behind for later uses: by
// itself that could take more bytes than the change frees. A descent holds what pays.
IntervalState ExactRepair::with_change(const IntervalState& state, const Change& change) {
  IntervalState next{state.decisions, {}};
  change.apply(next.decisions);
  next.plan = repair_.evaluate(next.decisions);
  if (change.holding == Holding::kMoved) return next;
  hold_lost(next);
  const std::span<const OpId> before = runs_of_stage(state.plan, change.wanted);
  bool changed = false;
  for (const OpId op : runs_of_stage(next.plan, change.wanted)) {
    if (op.index() == change.wanted || std::ranges::binary_search(before, op)) continue;
    for (TensorId t : space_.graph.makes(space_.model.variant(op))) {
      if (t == change.tensor || space_.graph.fixed(t)) continue;
      next.decisions.add(EarlyDrop{change.wanted + 1, t});
      changed = true;
    }
  }
  if (changed) next.plan = repair_.evaluate(next.decisions);
  return next;
}

// A re-run may read values of no other use, of which the makers may no longer run.
void ExactRepair::hold_lost(IntervalState& state) {
  for (int round = 0; round < kMaxHoldingRounds && !state.plan.lost.empty(); ++round) {
    for (const TensorId t : state.plan.lost) {
      state.decisions[space_.model.intervals_of(t).back()] = Holding::kHeld;
      state.decisions.remove_early_drops_if(
          [&](const EarlyDrop& drop) { return drop.tensor == t; });
    }
    state.plan = repair_.evaluate(state.decisions);
  }
}

// What the change costs for what it takes off the overflow; nothing if that does not help.
std::optional<double> ExactRepair::price_of_change(const IntervalState& before,
                                                   const IntervalState& after) const {
  const double gain = overflow(before.plan) - overflow(after.plan);
  if (gain <= 0 || !after.plan.lost.empty()) return std::nullopt;
  const double small =
      kCostOfAnyChange * space_.graph.base_cost() / static_cast<double>(space_.graph.num_ops());
  return (after.plan.cost - before.plan.cost + small) / gain;
}

// The one with the least price, with some noise. All that help are added to `helpful`.
std::optional<IntervalState> ExactRepair::cheapest_change(const IntervalState& state,
                                                          std::span<const Change> changes,
                                                          Random& random,
                                                          std::vector<Helpful>& helpful) {
  std::optional<IntervalState> best;
  double least = std::numeric_limits<double>::infinity();
  for (const Change& change : changes) {
    if (effort_.exhausted()) break;
    IntervalState next = with_change(state, change);
    const std::optional<double> exact = price_of_change(state, next);
    in_vain_[change.interval] = !exact;
    if (!exact) continue;
    const double price = (0.75 + 0.5 * random.real()) * *exact;
    helpful.push_back({price, &change});
    if (price >= least) continue;
    least = price;
    best = std::move(next);
  }
  return best;
}

// Further changes that helped alone, the cheapest first, while the stage is above the budget. Each is
// evaluated again, after those before it.
void ExactRepair::change_further(IntervalState& state, std::uint32_t stage,
                                 std::vector<Helpful> helpful) {
  std::ranges::stable_sort(helpful, {}, &Helpful::price);
  for (const Helpful& one : std::span(helpful).subspan(1)) {
    if (state.plan.stage_bytes[stage] <= budget_ || effort_.exhausted()) return;
    IntervalState next = with_change(state, *one.change);
    const std::optional<double> price = price_of_change(state, next);
    if (price && *price <= kDearerFactor * one.price) state = std::move(next);
  }
}

// The cheapest of the first changes that help, and with many ops more of them. False if none helps.
bool ExactRepair::change_for(std::uint32_t stage, std::vector<Change>& changes,
                             IntervalState& state, Random& random) {
  const bool many = space_.many();
  if (many) {
    // Not std::ranges::stable_partition: what that returns is no range for clang 14 with g++ 12's library.
    std::stable_partition(changes.begin(), changes.end(),
                          [&](const Change& change) { return !in_vain_[change.interval]; });
  }
  std::vector<Helpful> helpful;
  std::optional<IntervalState> next;
  std::size_t count = many ? kChangesTriedOfMany : kChangesTried;
  for (std::size_t first = 0; !next && first < changes.size() && !effort_.exhausted();) {
    const auto tried = std::span(changes).subspan(first, std::min(count, changes.size() - first));
    next = cheapest_change(state, tried, random, helpful);
    first += tried.size();
    if (!many) count = changes.size();
  }
  if (!next) return false;
  state = std::move(*next);
  if (many) change_further(state, stage, std::move(helpful));
  return true;
}

bool ExactRepair::relieve(IntervalState& state, Random& random) {
  state.plan = repair_.evaluate(state.decisions);
  hold_lost(state);
  if (!state.plan.lost.empty()) return false;
  for (int escapes = 0; escapes < kMaxEscapes && !effort_.exhausted();) {
    if (state.plan.peak_bytes <= budget_) return state.plan.fits;
    if (repair_.runs_away(state.plan) || repair_.far_beyond_the_cap(state.plan)) return false;
    const std::uint32_t position = position_over_budget(state.plan, random);
    std::vector<Change> changes = changes_at(position, state);
    if (change_for(state.plan.stage[position], changes, state, random)) continue;
    ++escapes;
    if (changes.empty()) continue;
    const std::int64_t chosen = random.between(0, std::ssize(changes) - 1);
    IntervalState next = with_change(state, changes[static_cast<std::size_t>(chosen)]);
    if (next.plan.lost.empty()) state = std::move(next);
  }
  return false;
}

void ExactRepair::descend(IntervalState& state, Random& random) {
  bool better = true;
  while (better) {
    better = false;
    const std::vector<EarlyDrop> drops = state.decisions.early_drops();
    std::vector<std::size_t> order;  // intervals, then early drops
    for (std::size_t i = 0; i < space_.model.size() + drops.size(); ++i) order.push_back(i);
    shuffle(order, random);
    // Room goes to what is expensive to recompute.
    std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) {
      const TensorId t = i < space_.model.size()
                             ? space_.model.interval(static_cast<IntervalId>(i)).tensor
                             : drops[i - space_.model.size()].tensor;
      return space_.graph.rerun_cost(space_.model.variant(space_.graph.producer(t)));
    });
    for (const std::size_t i : order) {
      if (effort_.exhausted()) return;
      better |= i < space_.model.size()
                    ? try_other_holdings(state, static_cast<IntervalId>(i), random)
                    : try_without(state, drops[i - space_.model.size()], random);
    }
    better |= try_other_early_runs(state);
  }
}

// Where ops wait for copies, a value that is recomputed some stages earlier may fill the time.
bool ExactRepair::try_other_early_runs(IntervalState& state) {
  const auto stalls = [&] {
    return !state.plan.steps.empty() &&
           clearly_below(cost_of_runs(space_, state.plan), state.plan.cost);
  };
  bool better = false;
  for (const EarlyRun& run : std::vector(state.decisions.early_runs())) {
    Decisions without = state.decisions;
    without.remove(run);
    better |= try_instead(state, std::move(without));
  }
  for (IntervalId g = 0; g < space_.model.size() && stalls(); ++g) {
    const ReuseInterval& interval = space_.model.interval(g);
    if (is_resident(state.decisions[g]) || !space_.model.droppable(g)) continue;
    for (const std::uint32_t ahead : kStagesAhead) {
      const std::uint32_t returned = state.plan.returned[g];
      if (effort_.exhausted()) return better;
      if (returned == interval.end && space_.model.last(g)) break;  // it does not return
      if (returned <= interval.begin + ahead) break;
      Decisions earlier = state.decisions;
      earlier.add(EarlyRun{returned - ahead, interval.tensor});
      better |= try_instead(state, std::move(earlier));
    }
  }
  return better;
}

// Whether to hold a value at the stages from `first` to before `last` has a chance. Where there is no
// room it rarely fits, through bytes that other ops no longer take, so it is rarely tried.
bool ExactRepair::may_fit(const IntervalPlan& plan, TensorId t, std::uint32_t first,
                          std::uint32_t last, Random& random) const {
  const Bytes room = budget_ - space_.graph.bytes(t);
  for (std::uint32_t stage = first; stage < last; ++stage) {
    if (plan.stage_bytes[stage] > room) return random.chance(kBlindTrialProbability);
  }
  return true;
}

bool ExactRepair::try_without(IntervalState& state, const EarlyDrop& drop, Random& random) {
  const IntervalPlan& plan = state.plan;
  const OpId maker = space_.graph.producer(drop.tensor);
  const auto from = std::ranges::lower_bound(plan.stage, drop.stage) - plan.stage.begin();
  const auto again = std::find(plan.ops.begin() + from, plan.ops.end(), maker);
  if (again != plan.ops.end()) {
    const std::uint32_t returned = plan.stage[static_cast<std::size_t>(again - plan.ops.begin())];
    if (!may_fit(plan, drop.tensor, drop.stage, returned, random)) return false;
  }
  Decisions without = state.decisions;
  without.remove(drop);
  return try_instead(state, std::move(without));
}

bool ExactRepair::try_other_holdings(IntervalState& state, IntervalId g, Random& random) {
  const ReuseInterval& interval = space_.model.interval(g);
  const Holding present = state.decisions[g];
  if (space_.graph.bytes(interval.tensor) == 0) return false;
  // Within the budget, to drop or to move a value adds cost, unless it shortens a stall.
  const bool moves = !state.plan.steps.empty();
  if (present == Holding::kHeld && !(moves && random.chance(kBlindTrialProbability))) return false;
  const bool leaves = space_.model.ends_with_read(g) && interval.end - interval.begin > 1;
  const bool droppable = space_.model.droppable(g);
  const auto possible = [&](Holding other) {
    switch (other) {
      case Holding::kHeld:
        return present == Holding::kMoved ||
               may_fit(state.plan, interval.tensor, interval.begin + 1, state.plan.returned[g],
                       random);
      case Holding::kMoved:
        return leaves && space_.can_move();
      default:
        // Between the two ways of recomputing there is rarely a difference in cost.
        return droppable && (is_resident(present) || random.chance(kBlindTrialProbability));
    }
  };
  bool better = false;
  for (const Holding other :
       {Holding::kHeld, Holding::kMoved, Holding::kDropped, Holding::kRecomputeEachUse}) {
    if (other == present || !possible(other)) continue;
    Decisions decisions = state.decisions;
    decisions[g] = other;
    better |= try_instead(state, std::move(decisions));
  }
  return better || try_other_returns(state, g);
}

bool ExactRepair::try_other_returns(IntervalState& state, IntervalId g) {
  const ReuseInterval& interval = space_.model.interval(g);
  bool better = false;
  if (is_resident(state.decisions[g])) return better;
  for (const std::uint32_t stage : return_stages(g, interval.begin)) {
    Decisions decisions = state.decisions;
    decisions.remove_early_runs_if(
        [&](const EarlyRun& run) { return run.tensor == interval.tensor; });
    decisions.add(EarlyRun{stage, interval.tensor});
    better |= try_instead(state, std::move(decisions));
  }
  return better;
}

bool ExactRepair::try_instead(IntervalState& state, Decisions decisions) {
  IntervalPlan plan = repair_.evaluate(decisions);
  if (!plan.fits || !clearly_below(plan.cost, state.plan.cost)) return false;
  state = {std::move(decisions), std::move(plan)};
  return true;
}

}  // namespace regen::search
