#include "regen/search/local/perturbation.h"

#include <algorithm>
#include <array>
#include <vector>

namespace regen::search {
namespace {

constexpr std::size_t kMostFew = 16;

class Perturbation {
 public:
  Perturbation(const IntervalSpace& space, Decisions& decisions, Random& random)
      : space_(space), decisions_(decisions), random_(random) {}

  // Dropped values near each other are held again; others will have to go.
  void hold_some() {
    const auto ops = static_cast<std::int64_t>(space_.graph.num_ops());
    const std::int64_t width = std::max<std::int64_t>(4, ops >> random_.between(0, 7));
    const std::int64_t low = random_.between(-width / 2, ops - 1);
    const double fraction = one_of(std::array{0.03, 0.1, 0.3, 1.0});
    const auto chosen = [&](IntervalId g) {
      const std::int64_t begin = space_.model.interval(g).begin;
      return begin >= low && begin <= low + width && random_.chance(fraction);
    };
    for (const IntervalId g : space_.inner) {
      if (!chosen(g)) continue;
      if (!is_resident(decisions_[g])) {
        decisions_[g] = Holding::kHeld;
      } else if (random_.chance(0.05)) {
        decisions_[g] = random_.chance(0.8) ? Holding::kDropped : Holding::kRecomputeEachUse;
      }
    }
    decisions_.remove_early_drops_if([&](const EarlyDrop& drop) {
      return drop.stage >= low && drop.stage <= low + width && random_.chance(fraction);
    });
    decisions_.remove_early_runs_if([&](const EarlyRun& run) {
      return run.stage >= low && run.stage <= low + width && random_.chance(fraction);
    });
    for (const TensorId t : space_.sources) {
      const IntervalId g = space_.model.intervals_of(t).back();
      if (!chosen(g)) continue;
      decisions_[g] = random_.chance(0.9) ? Holding::kDropped : Holding::kRecomputeEachUse;
    }
  }

  void hold_few() {
    std::vector<IntervalId> dropped;
    for (const IntervalId g : space_.inner) {
      if (!is_resident(decisions_[g])) dropped.push_back(g);
    }
    const std::vector<EarlyDrop> early = decisions_.early_drops();
    const std::size_t all = dropped.size() + early.size();
    if (all == 0) return;
    const std::int64_t changes = random_.between(1, static_cast<std::int64_t>(kMostFew));
    for (std::int64_t i = 0; i < changes; ++i) {
      const std::size_t chosen = index_below(all);
      if (chosen < dropped.size()) {
        decisions_[dropped[chosen]] = Holding::kHeld;
      } else {
        decisions_.remove(early[chosen - dropped.size()]);
      }
    }
  }

  void change_movement() {
    if (random_.chance(0.5)) {
      exchange_movement();
      return;
    }
    const std::int64_t changes = random_.between(1, 4);
    for (std::int64_t i = 0; i < changes; ++i) {
      const IntervalId g = random_.chance(0.8) ? large_interval() : any_interval();
      set_moved(g, !is_moved(g));
    }
  }

 private:
  // Other values are copied in the time of those that now stay.
  void exchange_movement() {
    constexpr int kDraws = 40;
    const std::int64_t changes = random_.between(1, 3);
    for (const bool moved : {true, false}) {
      std::int64_t left = changes;
      for (int draw = 0; draw < kDraws && left > 0; ++draw) {
        const IntervalId g = large_interval();
        if (is_moved(g) != moved) continue;
        set_moved(g, !moved);
        --left;
      }
    }
  }

  bool is_moved(IntervalId g) const { return decisions_[g] == Holding::kMoved; }

  // What moves once is not recomputed between other uses.
  void set_moved(IntervalId g, bool moved) {
    if (!moved) {
      decisions_[g] = Holding::kHeld;
      return;
    }
    for (const IntervalId other : space_.model.intervals_of(space_.model.interval(g).tensor)) {
      if (!space_.model.last(other) && !is_moved(other)) decisions_[other] = Holding::kHeld;
    }
    decisions_[g] = Holding::kMoved;
  }

  IntervalId any_interval() {
    const bool over_turn = !space_.over_turn.empty() && random_.chance(0.8);
    const auto& intervals = over_turn ? space_.over_turn : space_.movable;
    return intervals[index_below(intervals.size())];
  }

  // Drawn by bytes: most values of a network are small, and moving them frees little.
  IntervalId large_interval() {
    const auto& before = space_.movable_before;
    const double where = random_.real() * before.back();
    const auto index =
        static_cast<std::size_t>(std::ranges::upper_bound(before, where) - before.begin());
    return space_.movable[std::min(std::max<std::size_t>(index, 1), space_.movable.size()) - 1];
  }

  std::size_t index_below(std::size_t size) {
    return static_cast<std::size_t>(random_.between(0, static_cast<std::int64_t>(size) - 1));
  }
  template <std::size_t size>
  double one_of(const std::array<double, size>& values) {
    return values[index_below(size)];
  }

  const IntervalSpace& space_;
  Decisions& decisions_;
  Random& random_;
};

}  // namespace

void perturb(const IntervalSpace& space, Decisions& decisions, Random& random) {
  Perturbation perturbation(space, decisions, random);
  if (space.can_move() && random.chance(0.3)) perturbation.change_movement();
  perturbation.hold_some();
}

void perturb_few(const IntervalSpace& space, Decisions& decisions, Random& random) {
  Perturbation perturbation(space, decisions, random);
  if (space.can_move() && random.chance(0.3)) perturbation.change_movement();
  perturbation.hold_few();
}

}  // namespace regen::search
