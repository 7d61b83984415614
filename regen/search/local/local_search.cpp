#include "regen/search/local/local_search.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "regen/base/parallel.h"
#include "regen/plan/explain.h"
#include "regen/plan/whereabouts.h"
#include "regen/search/build/sequence.h"
#include "regen/search/effort_fraction.h"
#include "regen/search/local/exact_repair.h"
#include "regen/search/local/interval_blocks.h"
#include "regen/search/local/perturbation.h"
#include "regen/search/local/search_worker.h"

namespace regen::search {
namespace {

// Tries before a worker returns to its best plan.
constexpr int kTriesPerCycle = 300;
constexpr int kTriesPerCycleOfLarge = 60;
// The same number on every machine, so that all find the same. On large graphs a try takes long, so
// that there are fewer workers.
constexpr std::size_t kWorkers = 8;
constexpr std::size_t kWorkersOfLarge = 2;
// No worker starts from a plan with more than so many times the overhead of the best.
constexpr double kOverheadOfGoodStart = 1.5;
constexpr int kRoundsPerSettler = 2;  // before the worst worker goes on from the best

// Of the bytes that can be copied to the host in the time of the forward pass, those that blocks may
// count as away. Above 1 the forward pass waits, or copies go on in the backward pass.
constexpr std::array kCopiedFractions{0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0};

// By what fraction of the budget a descent lowers it at once, and the step at which it gives up.
constexpr double kFirstBudgetStepFraction = 0.04;
constexpr double kLastBudgetStepFraction = 0.0005;
// With many ops, larger steps are taken by estimates only.
constexpr double kExactBudgetStepFraction = 0.03;

// The fraction of the effort for the first plans and for those from hints: they may take long.
constexpr double kStartEffortFraction = 0.2;
// For lowering the budget step by step, where nothing else fits.
constexpr double kLoweringEffortFraction = 0.3;
// For the start with an exact repair. Where values move, evaluations take ten times as long, and the
// other starts are good.
constexpr double kExactStartEffortFraction = 0.4;
constexpr double kExactStartEffortFractionWithMoves = 0.05;

double forward_cost(const Graph& graph, OpId turn) {
  double sum = 0;
  for (OpId op : graph.ops()) {
    if (turn.valid() && op < turn) sum += graph.cost(base_variant(graph, op));
  }
  return sum;
}

}  // namespace

bool starts_from_plan(const Problem& problem) {
  const Plan* start = problem.start;
  return start && start->fingerprint == problem.graph->fingerprint() && keeps_order(*start);
}

QuickPlan quick_plan(const Problem& problem, const Graph& graph, Effort& effort, bool give_up) {
  QuickPlan quick{.bound = structural_bound(graph).bytes};
  if (quick.bound > *problem.budget || !check_sequences_possible(graph).ok()) return quick;
  Problem inner = problem;
  inner.graph = &graph;
  inner.observer = nullptr;
  LocalSearch search(inner, effort);
  search.start_in_blocks();
  search.start(give_up);
  quick.plan = search.best();
  return quick;
}

void LocalSearch::offer(const IntervalState& state) {
  if (!state.plan.fits || (best_ && best_->cost <= state.plan.cost)) return;
  best_ = state.plan;
  if (space_.problem.observer) space_.problem.observer(effort_.seconds(), best_->cost, 0);
}

void LocalSearch::fit_and_add(IntervalState state, IntervalRepair& repair, bool give_up) {
  Random random(1);
  if (repair.relieve(state, random, give_up)) add(std::move(state), repair);
}

void LocalSearch::add(IntervalState state, IntervalRepair& repair) {
  Random random(1);
  repair.refill(state, random);
  offer(state);
  add_start(std::move(state));
}

void LocalSearch::add_start(IntervalState state) {
  const bool known = std::ranges::any_of(
      starts_, [&](const IntervalState& other) { return other.plan.cost == state.plan.cost; });
  if (!known) starts_.push_back(std::move(state));
}

void LocalSearch::start_in_blocks() {
  const IntervalPlan kept = repair_.evaluate(space_.model.keep_everything());
  if (!kept.fits) add_blocks(IntervalBlocks(space_, kept));
}

void LocalSearch::add_blocks(const IntervalBlocks& blocks) {
  for (const double cheapest : {0.0, 0.25, 0.5, 0.75, 0.95}) add_blocks(blocks, cheapest, 0);
  if (!space_.can_move()) return;
  const double copied = forward_cost(space_.graph, space_.turn) * space_.problem.link.to_host;
  for (const double fraction : kCopiedFractions) add_blocks(blocks, 0, fraction * copied);
}

// The bytes of blocks are estimated, so smaller and smaller blocks are tried until a plan fits.
void LocalSearch::add_blocks(const IntervalBlocks& blocks, double cheapest, double away) {
  const auto budget = static_cast<double>(*space_.problem.budget);
  for (const double fraction : {1.0, 0.98, 0.95, 0.9, 0.8}) {
    auto decisions = blocks.within(fraction * budget, cheapest, away);
    if (!decisions) return;
    IntervalState state{std::move(*decisions), {}};
    state.plan = repair_.evaluate(state.decisions);
    if (!state.plan.fits) continue;
    add(std::move(state), repair_);
    return;
  }
}

void LocalSearch::start(bool give_up) {
  give_up |= space_.many();
  Effort own(fraction_of(effort_, kStartEffortFraction));
  IntervalRepair repair(space_, own);
  for (const double moved : {0.0, 1.0, 0.5, 1.5, 2.5}) {
    if (moved > 0 && !space_.can_move()) break;
    if ((give_up || best_) && own.exhausted()) break;
    fit_and_add({move_early(moved), {}}, repair, give_up || best_.has_value());
  }
  effort_.add(own.work());
}

void LocalSearch::start_from(const Plan& plan) {
  if (auto decisions = space_.model.read_plan(plan)) start_from(std::move(*decisions));
}

void LocalSearch::start_moving(Decisions decisions) {
  if (!space_.can_move()) return;
  for (const IntervalId g : space_.movable) {
    if (decisions[g] == Holding::kHeld) decisions[g] = Holding::kMoved;
  }
  start_from(std::move(decisions));
}

void LocalSearch::start_exactly(std::uint64_t seed) {
  if (space_.many()) {
    if (!space_.large() || !best_) lower(seed, kExactStartEffortFraction);
    return;
  }
  Random random(seed);
  Effort own(fraction_of(
      effort_, space_.can_move() ? kExactStartEffortFractionWithMoves : kExactStartEffortFraction));
  IntervalRepair repair(space_, own);
  IntervalState state{space_.model.keep_everything(), {}};
  if (relieve_best(state, repair, random, true)) {
    add(std::move(state), repair);
  } else {
    fit_and_add(std::move(state));  // estimates complete what there was no time for
  }
  effort_.add(own.work());
}

void LocalSearch::start_by_lowering(std::uint64_t seed) {
  lower(seed, kLoweringEffortFraction);
}

void LocalSearch::lower(std::uint64_t seed, double effort_fraction) {
  Effort own(fraction_of(effort_, effort_fraction));
  IntervalRepair repair(space_, own);
  Random random(seed);
  const Bytes target = *space_.problem.budget;
  IntervalState state{space_.model.keep_everything(), {}};
  state.plan = repair.evaluate(state.decisions);
  Bytes budget = std::max(target, state.plan.peak_bytes);
  double step = kFirstBudgetStepFraction;
  while (budget > target && step > kLastBudgetStepFraction && !own.exhausted()) {
    const Bytes lower =
        std::max(target, static_cast<Bytes>(static_cast<double>(budget) * (1 - step)));
    repair.set_budget(lower);
    const bool exactly = !space_.many() || step <= kExactBudgetStepFraction;
    if (exactly && space_.many() && !beats_best(state.plan)) break;
    IntervalState next = state;
    if (relieve_best(next, repair, random, exactly)) {
      // Room gained for nothing is taken along.
      budget = std::max(target, std::min(lower, next.plan.peak_bytes));
      step = std::min(kFirstBudgetStepFraction, step * 1.5);
      state = std::move(next);
      continue;
    }
    step /= 2;
    if (!exactly) continue;
    // Other decisions within the budget that is reached, and a smaller step from there.
    repair.set_budget(budget);
    next = state;
    perturb_few(space_, next.decisions, random);
    if (relieve_best(next, repair, random, exactly)) state = std::move(next);
  }
  repair.set_budget(target);
  if (budget == target) fit_and_add(std::move(state), repair, true);
  effort_.add(own.work());
}

// Whether the plan has so much less overhead than the best one that a search from that one would not
// find the like soon.
bool LocalSearch::beats_best(const IntervalPlan& plan) const {
  const double base = space_.graph.base_cost();
  return !best_ || best_->cost - base > kOverheadOfGoodStart * (plan.cost - base);
}

// Repairs and improves as exactly as the graph's size allows. With many ops, estimates come first,
// and what they leave above the budget is repaired exactly, or with `exactly` false not at all.
bool LocalSearch::relieve_best(IntervalState& state, IntervalRepair& repair, Random& random,
                               bool exactly) const {
  if (space_.many()) {
    if (!repair.relieve_while_better(state, random)) {
      if (!exactly || !ExactRepair(repair).relieve(state, random)) return false;
    }
    repair.refill(state, random);
    return true;
  }
  ExactRepair exact(repair);
  if (!exact.relieve(state, random)) return false;
  exact.descend(state, random);
  return true;
}

void LocalSearch::start_from_hints(const std::vector<double>& again) {
  Effort own(fraction_of(effort_, kStartEffortFraction));
  IntervalRepair repair(space_, own);
  const IntervalPlan kept = repair_.evaluate(space_.model.keep_everything());
  std::vector<std::uint32_t> over_before{0};  // how many ops are over the budget
  for (const Bytes b : kept.stage_bytes) {
    over_before.push_back(over_before.back() + (b > *space_.problem.budget));
  }
  if (!kept.fits) {
    IntervalBlocks blocks(space_, kept);
    blocks.prefer(again);
    add_blocks(blocks);
  }
  for (const double threshold : {0.5, 0.95, 0.05}) {
    for (const double moved : {0.0, 0.5, 1.0}) {
      if (moved > 0 && !space_.can_move()) break;
      if (own.exhausted()) break;
      IntervalState state{move_early(moved), {}};
      for (const IntervalId g : space_.inner) {
        const ReuseInterval& interval = space_.model.interval(g);
        const bool helps = over_before[interval.end] > over_before[interval.begin + 1];
        const bool hinted = again[space_.graph.producer(interval.tensor).index()] > threshold;
        Holding& holding = state.decisions[g];
        if (helps && hinted && holding == Holding::kHeld) holding = Holding::kDropped;
      }
      fit_and_add(std::move(state), repair, true);
    }
  }
  effort_.add(own.work());
}

// Everything is held, but the first values are moved over the turn, as many as can be copied in
// this fraction of the forward pass.
Decisions LocalSearch::move_early(double forward_fraction) const {
  Decisions decisions = space_.model.keep_everything();
  const double seconds = forward_fraction * forward_cost(space_.graph, space_.turn);
  auto bytes = static_cast<Bytes>(seconds * space_.problem.link.to_host);
  for (const IntervalId g : space_.over_turn) {
    bytes -= space_.graph.bytes(space_.model.interval(g).tensor);
    if (bytes < 0) break;
    decisions[g] = Holding::kMoved;
  }
  return decisions;
}

// How many of the starts, which are sorted by cost, are worth the time of a worker.
std::size_t LocalSearch::good_starts() const {
  const double base = space_.graph.base_cost();
  const double most = base + kOverheadOfGoodStart * (starts_.front().plan.cost - base);
  const auto end = std::ranges::upper_bound(starts_, most, {},
                                            [](const IntervalState& s) { return s.plan.cost; });
  return std::max<std::size_t>(1, static_cast<std::size_t>(end - starts_.begin()));
}

void LocalSearch::improve(std::uint64_t seed, double good_enough, const Patience& patience) {
  if (starts_.empty() || space_.inner.empty()) return;
  std::ranges::stable_sort(starts_, {}, [](const IntervalState& s) { return s.plan.cost; });
  const std::size_t good = good_starts();
  std::vector<SearchWorker> workers;
  for (std::size_t i = 0; i < (space_.large() ? kWorkersOfLarge : kWorkers); ++i) {
    workers.emplace_back(space_, starts_[i % good], (seed + searches_) * kWorkers + i);
  }
  ++searches_;
  // The more decisions there are, the longer an improvement may take.
  const int tries = static_cast<int>(std::min<std::size_t>(100 + 20 * space_.inner.size(), 40'000));
  const auto tired = [&](const SearchWorker& i) { return i.since_better() > tries; };
  const Limits wait = fraction_of(effort_, patience.fraction);
  std::optional<Effort> idle(wait);  // since something better was found
  Effort whole({.seconds = patience.most.seconds, .work = patience.most.work});
  for (int round = 1; !effort_.exhausted() && !whole.exhausted() && best_->cost > good_enough;
       ++round) {
    const double before = std::min(best_->cost, patience.known);
    const std::int64_t work = effort_.work();
    explore_all(workers, good_enough, std::min(whole.work_left(), idle->work_left()),
                std::min(whole.seconds_left(), idle->seconds_left()));
    idle->add(effort_.work() - work);
    whole.add(effort_.work() - work);
    if (best_->cost < before) idle.emplace(wait);
    if (idle->exhausted()) break;
    std::ranges::stable_sort(workers, {}, &SearchWorker::cost);
    if (round % kRoundsPerSettler == 0) workers.back().settle(workers.front().best());
    if (std::ranges::all_of(workers, tired)) break;
  }
  for (const SearchWorker& worker : workers) add_start(worker.best());
}

void LocalSearch::explore_all(std::vector<SearchWorker>& workers, double good_enough,
                              std::int64_t most_work, double most_seconds) {
  Limits limits = effort_.limits();
  // Workers that wait for a core need their part of the time too.
  const auto threads = static_cast<std::size_t>(available_threads());
  const std::size_t turns = (workers.size() + threads - 1) / threads;
  limits.seconds = std::min(effort_.seconds_left(), most_seconds) / static_cast<double>(turns);
  const std::int64_t work = std::min(effort_.work_left(), most_work);
  limits.work = work / static_cast<std::int64_t>(workers.size()) + 1;
  const int tries = space_.large() ? kTriesPerCycleOfLarge : kTriesPerCycle;
  parallel_for(workers.size(), 0,
               [&](std::size_t i) { workers[i].explore(tries, good_enough, limits); });
  for (const SearchWorker& worker : workers) {
    effort_.add(worker.work());
    offer(worker.best());
  }
}

}  // namespace regen::search
