#include "regen/search/local/search_worker.h"

#include <algorithm>
#include <array>
#include <utility>

namespace regen::search {
namespace {

constexpr double kAcceptedLossFraction =
    0.06;  // of the overhead: the loss that is accepted at first

}  // namespace

void SearchWorker::explore(int tries, double good_enough, const Limits& limits) {
  constexpr std::array<double, 4> kBlurs{0.3, 1, 2, 4};
  Effort effort(limits);
  IntervalRepair repair(*space_, effort);
  current_ = best_;
  for (int i = 0; i < tries && !effort.exhausted() && cost() > good_enough; ++i) {
    IntervalState next = current_;
    repair.set_blur(kBlurs[static_cast<std::size_t>(random_.between(0, 3))]);
    perturb(next);
    ++since_better_;
    if (!repair.relieve(next, random_, true)) continue;
    repair.refill(next, random_);
    if (next.plan.cost < cost() * (1 - 1e-12)) {
      since_better_ = 0;
      best_ = next;
    }
    // The accepted loss shrinks.
    const double overhead = cost() / space_->graph.base_cost() - 1;
    const double heat = kAcceptedLossFraction * (1.0 - static_cast<double>(i) / tries);
    const double tolerance = heat * random_.real() * overhead;
    if (next.plan.cost <= current_.plan.cost * (1 + tolerance)) current_ = std::move(next);
  }
  work_ = effort.work();
}

void SearchWorker::perturb(IntervalState& state) {
  if (space_->can_move() && random_.chance(0.3)) change_movement(state);
  hold_some(state);
}

// Dropped values near each other are held again; others will have to go.
void SearchWorker::hold_some(IntervalState& state) {
  const auto ops = static_cast<std::int64_t>(space_->graph.num_ops());
  const std::int64_t width = std::max<std::int64_t>(4, ops >> random_.between(0, 7));
  const std::int64_t low = random_.between(-width / 2, ops - 1);
  constexpr std::array<double, 4> kShares{0.03, 0.1, 0.3, 1};
  const double share = kShares[static_cast<std::size_t>(random_.between(0, 3))];
  for (const IntervalId g : space_->inner) {
    const ReuseInterval& interval = space_->model.interval(g);
    if (interval.begin < low || interval.begin > low + width || !random_.chance(share)) continue;
    Holding& holding = state.decisions.holdings[g];
    if (holding != Holding::kHeld) {
      holding = Holding::kHeld;
    } else if (random_.chance(0.05)) {
      holding = random_.chance(0.8) ? Holding::kDropped : Holding::kNever;
    }
  }
  for (const TensorId t : space_->sources) {
    const IntervalId g = space_->model.intervals_of(t).back();
    if (space_->model.interval(g).begin < low || space_->model.interval(g).begin > low + width ||
        !random_.chance(share))
      continue;
    state.decisions.holdings[g] = random_.chance(0.9) ? Holding::kDropped : Holding::kNever;
  }
}

void SearchWorker::change_movement(IntervalState& state) {
  if (random_.chance(0.5)) {
    exchange_movement(state);
    return;
  }
  const std::int64_t changes = random_.between(1, 4);
  for (std::int64_t i = 0; i < changes; ++i) {
    const TensorId t = random_.chance(0.8) ? large_value() : any_value();
    set_moved(state, t, !state.decisions.moved[t]);
  }
}

// Other values are copied in the time of those that now stay.
void SearchWorker::exchange_movement(IntervalState& state) {
  constexpr int kDraws = 40;
  const std::int64_t changes = random_.between(1, 3);
  for (const bool moved : {true, false}) {
    std::int64_t left = changes;
    for (int draw = 0; draw < kDraws && left > 0; ++draw) {
      const TensorId t = large_value();
      if ((state.decisions.moved[t] != 0) != moved) continue;
      set_moved(state, t, !moved);
      --left;
    }
  }
}

void SearchWorker::set_moved(IntervalState& state, TensorId t, bool moved) {
  state.decisions.moved[t] = moved;
  if (!moved) return;
  for (const IntervalId g : space_->model.intervals_of(t)) {
    if (!space_->model.last(g)) state.decisions.holdings[g] = Holding::kHeld;
  }
}

TensorId SearchWorker::any_value() {
  const auto last = static_cast<std::int64_t>(space_->movable.size()) - 1;
  return space_->movable[static_cast<std::size_t>(random_.between(0, last))];
}

// Drawn by bytes: most values of a network are small, and moving them frees little.
TensorId SearchWorker::large_value() {
  const auto& before = space_->movable_before;
  const double where = random_.real() * before.back();
  const auto behind = std::ranges::upper_bound(before, where);
  const auto index = static_cast<std::size_t>(behind - before.begin());
  return space_->movable[std::min(std::max<std::size_t>(index, 1) - 1, space_->movable.size() - 1)];
}

}  // namespace regen::search
