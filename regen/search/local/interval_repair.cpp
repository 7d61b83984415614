#include "regen/search/local/interval_repair.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "regen/search/build/sequence.h"
#include "regen/search/local/stage_bytes.h"

namespace regen::search {
namespace {

constexpr int kRelieveRounds = 60;
constexpr std::ptrdiff_t kFewOpsOverBudget = 100;
constexpr std::size_t kMaxRunsPerOp = 15;
constexpr int kMaxPriceDepth = 10;
// An interval with a price that has grown by more than this factor goes back into the queue.
constexpr double kRequeuePriceFactor = 1.5;
// The price of a re-run that is not possible; finite, so that scores can be compared.
constexpr double kNever = 1e100;

}  // namespace

double IntervalRepair::blurred(double value, Random& random) const {
  return value * std::exp(blur_ * (random.real() - 0.5));
}

IntervalPlan IntervalRepair::evaluate(const Decisions& decisions) {
  IntervalPlan plan = search::evaluate(space_, decisions, budget_);
  effort_.add(static_cast<std::int64_t>(plan.ops.size()) / 4 + 1);
  return plan;
}

// Every drop costs re-runs; refilling removes some of them, not most.
bool IntervalRepair::far_beyond_the_cap(const IntervalPlan& plan) const {
  if (!space_.problem.cost_cap) return false;
  const double base = space_.graph.base_cost();
  const double allowed = *space_.problem.cost_cap - base;
  return cost_of_runs(space_, plan) - base > 2 * std::max(0.0, allowed);
}

// Where few ops are over the budget, pricing all intervals again for each of them finds more.
bool IntervalRepair::at_once(const IntervalPlan& plan) const {
  if (space_.large() || !space_.many()) return space_.large();
  const auto over =
      std::ranges::count_if(plan.stage_bytes, [&](Bytes bytes) { return bytes > budget_; });
  return over > kFewOpsOverBudget;
}

bool IntervalRepair::runs_away(const IntervalPlan& plan) const {
  return plan.ops.size() > kMaxRunsPerOp * space_.graph.num_ops();
}

bool IntervalRepair::relieve(IntervalState& state, Random& random, bool give_up) {
  for (int round = 0; round < kRelieveRounds; ++round) {
    state.plan = evaluate(state.decisions);
    if (state.plan.peak_bytes <= budget_) return state.plan.fits;
    if (give_up && (effort_.exhausted() || runs_away(state.plan))) return false;
    if (far_beyond_the_cap(state.plan)) return false;
    if (!relieve_round(state, random, give_up)) return false;
  }
  return false;
}

bool IntervalRepair::relieve_while_better(IntervalState& state, Random& random) {
  state.plan = evaluate(state.decisions);
  const Bytes first_peak = state.plan.peak_bytes;
  IntervalState next = state;
  for (int round = 0; round < kRelieveRounds && state.plan.peak_bytes > budget_; ++round) {
    if (effort_.exhausted() || !relieve_round(next, random, true)) break;
    next.plan = evaluate(next.decisions);
    if (next.plan.peak_bytes > first_peak) break;
    if (next.plan.peak_bytes < state.plan.peak_bytes) state = next;
  }
  return state.plan.fits;
}

bool IntervalRepair::relieve_round(IntervalState& state, Random& random, bool give_up) {
  return at_once(state.plan) ? relieve_all(state, random) : relieve_once(state, random, give_up);
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
bool IntervalRepair::relieve_once(IntervalState& state, Random& random, bool give_up) {
  std::vector<Bytes> bytes = state.plan.stage_bytes;
  const Bytes budget = budget_;
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

double IntervalRepair::gain(IntervalId g, const std::vector<double>& excess_before) const {
  const ReuseInterval& interval = space_.model.interval(g);
  const double excess = excess_before[interval.end] - excess_before[interval.begin + 1];
  return static_cast<double>(space_.graph.bytes(interval.tensor)) * std::sqrt(1 + excess);
}

EvictionQueue IntervalRepair::droppable_where_over(const IntervalState& state,
                                                   const std::vector<double>& excess_before,
                                                   Random& random) {
  EvictionQueue queue(space_.graph.num_ops(), space_.model.size());
  std::int64_t priced = 0;
  for (const IntervalId g : space_.inner) {
    const ReuseInterval& interval = space_.model.interval(g);
    if (!is_resident(state.decisions[g])) continue;
    if (excess_before[interval.end] <= excess_before[interval.begin + 1]) continue;
    const double price = price_of_dropping(g, state.decisions);
    queue.add({blurred(price / gain(g, excess_before), random), g}, interval.begin + 1,
              interval.end);
    ++priced;
  }
  effort_.add(static_cast<std::int64_t>(space_.inner.size()) / 64 + priced / 4 + 1);
  return queue;
}

// The same as relieve_once() for graphs with very many ops: prices are found once, and again when
// an interval is taken, because its inputs may have been dropped since.
bool IntervalRepair::relieve_all(IntervalState& state, Random& random) {
  const Bytes budget = budget_;
  const std::vector<double> excess_before = sums_of_excess(state.plan.stage_bytes, budget);
  EvictionQueue queue = droppable_where_over(state, excess_before, random);
  StageBytes bytes(state.plan.stage_bytes);
  Decisions& decisions = state.decisions;
  std::vector<double> price(space_.model.size(), 0);  // when last computed
  std::int64_t taken = 0;
  bool changed = false;
  // NOLINTNEXTLINE(bugprone-infinite-loop): the bindings change, which the check does not see
  for (auto [most, stage] = bytes.peak(); most > budget; std::tie(most, stage) = bytes.peak()) {
    const auto entry = queue.take(stage);
    if (!entry) {
      bytes.add(stage, stage + 1, budget - most);  // nothing can be done here
      continue;
    }
    ++taken;
    const ReuseInterval& interval = space_.model.interval(entry->interval);
    const double now =
        price_of_dropping(entry->interval, decisions) / gain(entry->interval, excess_before);
    double& before = price[entry->interval];
    if (now > kRequeuePriceFactor * std::max(before, entry->score)) {
      before = now;
      queue.add({now, entry->interval}, interval.begin + 1, interval.end);
      continue;
    }
    decisions[entry->interval] = Holding::kDropped;
    bytes.add(interval.begin + 1, interval.end, -space_.graph.bytes(interval.tensor));
    changed = true;
  }
  effort_.add(taken / 4 + 1);
  if (changed) return true;
  const auto peak =
      std::ranges::max_element(state.plan.stage_bytes) - state.plan.stage_bytes.begin();
  return make_anew_across(static_cast<std::uint32_t>(peak), state) > 0;
}

std::vector<IntervalRepair::Eviction> IntervalRepair::evictions(
    std::uint32_t stage, const IntervalState& state, const std::vector<double>& excess_before,
    Random& random) {
  std::vector<Eviction> found;
  const Decisions& decisions = state.decisions;
  for (const IntervalId g : space_.inner) {
    if (!crosses(g, stage) || !is_resident(decisions[g])) continue;
    const double score = price_of_dropping(g, decisions) / gain(g, excess_before);
    found.push_back({blurred(score, random), {g}, {}});
  }
  for (const TensorId source : space_.sources) {
    auto eviction = eviction_by_source(source, stage, state);
    if (!eviction) continue;
    const ReuseInterval& interval = space_.model.interval(eviction->dropped.front());
    const double excess = excess_before[interval.end] - excess_before[interval.begin + 1];
    eviction->score = blurred(eviction->score / std::sqrt(1 + excess), random);
    found.push_back(std::move(*eviction));
  }
  effort_.add(static_cast<std::int64_t>(space_.inner.size() + space_.sources.size()) / 32 + 1);
  std::ranges::sort(found, {}, &Eviction::score);
  return found;
}

// Everything that is made from the source and held at the stage is dropped; the source is held.
std::optional<IntervalRepair::Eviction> IntervalRepair::eviction_by_source(
    TensorId source, std::uint32_t stage, const IntervalState& state) {
  const Decisions& decisions = state.decisions;
  const IntervalId own = space_.model.intervals_of(source).back();
  if (space_.model.interval(own).begin >= stage) return std::nullopt;
  const bool held = decisions[own] == Holding::kHeld;
  Eviction eviction;
  Bytes gain = held ? 0 : -space_.graph.bytes(source);
  double price = 0;
  for (OpId reader : space_.graph.consumers(source)) {
    bool drops = false;
    for (TensorId t : space_.graph.makes(base_variant(space_.graph, reader))) {
      if (space_.graph.fixed(t) || space_.graph.bytes(t) == 0) continue;
      const IntervalId g = space_.model.interval_at(t, stage);
      if (!crosses(g, stage) || space_.model.last(g) || !space_.model.droppable(g)) continue;
      if (!is_resident(decisions[g])) continue;
      eviction.dropped.push_back(g);
      gain += space_.graph.bytes(t);
      drops = true;
    }
    if (drops) price += space_.graph.rerun_cost(base_variant(space_.graph, reader));
  }
  if (gain <= 0 || eviction.dropped.empty()) return std::nullopt;
  if (!held) eviction.held = own;
  eviction.score = price / static_cast<double>(gain);
  return eviction;
}

std::size_t IntervalRepair::drop_across(std::uint32_t stage, IntervalState& state,
                                        std::vector<Bytes>& bytes,
                                        const std::vector<double>& excess_before, Random& random) {
  std::size_t dropped = 0;
  for (const Eviction& eviction : evictions(stage, state, excess_before, random)) {
    if (bytes[stage] <= budget_) break;
    Decisions& decisions = state.decisions;
    // Another choice may have taken a part of this one.
    const bool whole = std::ranges::all_of(eviction.dropped,
                                           [&](IntervalId g) { return is_resident(decisions[g]); });
    if (!whole) continue;
    std::uint32_t end = 0;
    for (const IntervalId g : eviction.dropped) {
      const ReuseInterval& interval = space_.model.interval(g);
      decisions[g] = Holding::kDropped;
      for (std::uint32_t s = interval.begin + 1; s < interval.end; ++s)
        bytes[s] -= space_.graph.bytes(interval.tensor);
      end = std::max(end, interval.end);
    }
    if (eviction.held) {
      const ReuseInterval& interval = space_.model.interval(*eviction.held);
      decisions[*eviction.held] = Holding::kHeld;
      for (std::uint32_t s = interval.begin + 1; s < end; ++s)
        bytes[s] += space_.graph.bytes(interval.tensor);
    }
    ++dropped;
  }
  return dropped;
}

// Intervals that are dropped but recomputed before this stage for another op, and held over it.
std::size_t IntervalRepair::make_anew_across(std::uint32_t stage, IntervalState& state) {
  std::size_t changed = 0;
  for (const IntervalId g : space_.inner) {
    const ReuseInterval& interval = space_.model.interval(g);
    if (interval.begin >= stage || interval.end <= stage) continue;
    if (state.decisions[g] != Holding::kDropped) continue;
    state.decisions[g] = Holding::kRecomputeEachUse;
    ++changed;
  }
  // And what is of no further use but for running others again.
  for (const TensorId t : space_.sources) {
    const IntervalId g = space_.model.intervals_of(t).back();
    if (space_.model.interval(g).begin >= stage || state.decisions[g] == Holding::kRecomputeEachUse)
      continue;
    state.decisions[g] = Holding::kRecomputeEachUse;
    ++changed;
  }
  return changed;
}

void IntervalRepair::refill(IntervalState& state, Random& random) {
  IntervalState fuller = state;
  StageBytes bytes(state.plan.stage_bytes);
  std::vector<std::pair<double, IntervalId>> dropped;
  for (const IntervalId g : space_.inner) {
    if (is_resident(state.decisions[g])) continue;
    const double price = price_of_dropping(g, state.decisions);
    dropped.emplace_back(
        -blurred(price / static_cast<double>(space_.graph.bytes(space_.model.interval(g).tensor)),
                 random),
        g);
  }
  std::ranges::sort(dropped);
  std::size_t held = 0;
  for (const auto& [score, g] : dropped) {
    const ReuseInterval& interval = space_.model.interval(g);
    const Bytes size = space_.graph.bytes(interval.tensor);
    // From when it comes back it is there anyway.
    const std::uint32_t first = interval.begin + 1;
    const std::uint32_t returned = state.plan.returned[g];
    if (first >= returned || bytes.most(first, returned) + size > budget_) continue;
    bytes.add(first, returned, size);
    fuller.decisions[g] = Holding::kHeld;
    ++held;
  }
  if (held == 0) return;
  fuller.plan = evaluate(fuller.decisions);
  if (fuller.plan.fits && fuller.plan.cost < state.plan.cost) state = std::move(fuller);
}

double IntervalRepair::price_of_dropping(IntervalId g, const Decisions& decisions) {
  ++round_;
  const ReuseInterval& interval = space_.model.interval(g);
  return rerun_price(space_.graph.producer(interval.tensor), interval.end, decisions, 0);
}

// The cost of recomputing an op's values at a later op, given what is held there. An estimate:
// values that are dropped there may have come back before.
double IntervalRepair::rerun_price(OpId op, std::uint32_t at, const Decisions& decisions,
                                   int depth) {
  if (mark_[op] == round_) return 0;
  mark_[op] = round_;
  if (!space_.model.repeatable(op, at)) return kNever;
  const VariantId variant = base_variant(space_.graph, op);
  double price = space_.graph.rerun_cost(variant);
  if (depth == kMaxPriceDepth) return price;
  for (TensorId t : space_.graph.reads(variant)) {
    if (space_.graph.fixed(t)) continue;
    const IntervalId g = space_.model.interval_at(t, at);
    const bool held = !space_.model.droppable(g) || is_resident(decisions[g]);
    if (!held) price += rerun_price(space_.graph.producer(t), at, decisions, depth + 1);
  }
  return price;
}

}  // namespace regen::search
