#include "regen/published/lower_sets/lower_set_search.h"

#include <algorithm>
#include <tuple>

namespace regen::published {
namespace {

struct State {
  std::uint64_t mask = 0;
  double cost = 0;
  Bytes held = 0;
  std::uint32_t parent = 0;
};

class ChainSearch {
 public:
  ChainSearch(LowerSetMemory& memory, const LowerSetFamily& family,
              const ChainSearchOptions& options, Effort& effort)
      : memory_(memory),
        family_(family),
        options_(options),
        effort_(effort),
        walk_(family, options.transitions == Transitions::kAll),
        waiting_(family.size()),
        best_cost_(options.cost_below) {}

  ChainSearchResult run();

 private:
  using Group = std::span<const State>;  // of one set and one mask, cost up and held bytes down

  void settle(std::uint32_t set);
  void thin(std::size_t first);
  void leave(std::uint32_t set, Group group);
  void finish(std::uint32_t set, Group group);
  bool step(std::uint32_t set, Group group, std::uint32_t to);
  // What a state of the set being settled will have to re-run at least.
  double to_come(const State& state) const {
    DropBound& bound = memory_.bound();
    return bound.cost_of(state.held + bound.bytes() - options_.budget);
  }
  std::uint32_t number(const State& state) const {
    return static_cast<std::uint32_t>(&state - states_.data());
  }

  LowerSetMemory& memory_;
  const LowerSetFamily& family_;
  const ChainSearchOptions& options_;
  Effort& effort_;
  TransitionWalk walk_;
  std::vector<State> states_;                // settled
  std::vector<std::vector<State>> waiting_;  // by set, until its turn
  double best_cost_;
  std::optional<std::uint32_t> best_;
  std::uint32_t steps_ = 0;
  bool stopped_ = false;
  bool thinned_ = false;
};

// Of the states that reached the set, keeps those that no other one with the same mask beats.
void ChainSearch::settle(std::uint32_t set) {
  std::vector<State> offered = std::move(waiting_[set]);
  waiting_[set] = {};
  std::ranges::sort(offered, [&](const State& a, const State& b) {
    return options_.leanest ? std::tie(a.mask, a.held, a.cost, a.parent) <
                                  std::tie(b.mask, b.held, b.cost, b.parent)
                            : std::tie(a.mask, a.cost, a.held, a.parent) <
                                  std::tie(b.mask, b.cost, b.held, b.parent);
  });
  if (offered.empty()) return;
  memory_.bound().prepare(family_[set]);
  const std::size_t first = states_.size();
  for (const State& state : offered) {
    if (state.cost >= best_cost_) continue;
    const bool same = states_.size() > first && states_.back().mask == state.mask;
    if (same && (options_.leanest || state.held >= states_.back().held)) continue;
    if (state.cost + to_come(state) >= best_cost_) continue;
    states_.push_back(state);
  }
  if (options_.beam > 0) thin(first);
}

// Keeps the most promising half, and the other half evenly from the cheapest to the leanest: at a
// tight budget only lean states lead anywhere, and which ones is not known yet.
void ChainSearch::thin(std::size_t first) {
  const std::size_t count = states_.size() - first;
  if (count <= options_.beam) return;
  const std::size_t half = options_.beam / 2;
  std::vector<std::pair<double, std::size_t>> promise;
  for (std::size_t i = 0; i < count; ++i) {
    promise.emplace_back(states_[first + i].cost + to_come(states_[first + i]), i);
  }
  std::ranges::nth_element(promise, promise.begin() + static_cast<std::ptrdiff_t>(half));
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < half; ++i) {
    kept.push_back(promise[i].second);
    kept.push_back(i * (count - 1) / (half - 1));
  }
  std::ranges::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  for (std::size_t i = 0; i < kept.size(); ++i) states_[first + i] = states_[first + kept[i]];
  states_.resize(first + kept.size());
  thinned_ = true;
}

// The last block costs nothing: it is not run again.
void ChainSearch::finish(std::uint32_t set, Group group) {
  const auto whole = static_cast<std::uint32_t>(family_.size() - 1);
  // The last block keeps whatever is read later.
  if (group.back().held + memory_.bound().bytes() > options_.budget) return;
  const BlockFacts& facts = memory_.evaluate(set, whole, group.front().mask,
                                             {.peak = options_.budget - group.back().held});
  if (!facts.whole) return;
  for (const State& state : group) {
    if (state.held + facts.peak > options_.budget || state.cost >= best_cost_) continue;
    best_cost_ = state.cost;
    best_ = number(state);
  }
}

bool ChainSearch::step(std::uint32_t set, Group group, std::uint32_t to) {
  if (to + 1 == family_.size()) return false;
  const BlockLimits limits{.cost = best_cost_ - group.front().cost,
                           .peak = options_.budget - group.back().held};
  const BlockFacts& facts = memory_.evaluate(set, to, group.front().mask, limits);
  effort_.add(1 + static_cast<std::int64_t>(group.size() / 16));
  const bool wider = facts.cost < limits.cost && facts.floor <= limits.peak;
  if (!facts.whole) return wider;
  for (const State& state : group) {
    if (state.held + facts.peak > options_.budget) continue;
    const double cost = state.cost + facts.cost;
    if (cost >= best_cost_) break;
    waiting_[to].push_back({facts.mask, cost, state.held + facts.held, number(state)});
  }
  return wider;
}

void ChainSearch::leave(std::uint32_t set, Group group) {
  finish(set, group);
  walk_.run(set, [&](std::uint32_t to) {
    // The clock is looked at now and then only.
    if ((++steps_ & 255) == 0 && effort_.exhausted()) stopped_ = true;
    return !stopped_ && step(set, group, to);
  });
}

ChainSearchResult ChainSearch::run() {
  ChainSearchResult result;
  waiting_[0].push_back({});
  std::vector<std::uint32_t> first{0};
  for (std::uint32_t set = 0; set + 1 < family_.size() && !stopped_; ++set) {
    settle(set);
    const std::size_t begin = first.back();
    const std::size_t end = states_.size();
    first.push_back(static_cast<std::uint32_t>(end));
    for (std::size_t i = begin; i < end && !stopped_;) {
      std::size_t next = i;
      while (next < end && states_[next].mask == states_[i].mask) ++next;
      leave(set, Group(states_.data() + i, next - i));
      i = next;
    }
  }
  result.complete = !stopped_ && !thinned_;
  if (!best_) return result;
  result.cost = best_cost_;
  result.chain.emplace(1, static_cast<std::uint32_t>(family_.size() - 1));
  for (std::uint32_t state = *best_; state != 0; state = states_[state].parent) {
    const auto place = std::upper_bound(first.begin(), first.end(), state) - 1;
    result.chain->push_back(static_cast<std::uint32_t>(place - first.begin()));
  }
  std::reverse(result.chain->begin(), result.chain->end());
  return result;
}

}  // namespace

ChainSearchResult search_chains(LowerSetMemory& memory, const LowerSetFamily& family,
                                const ChainSearchOptions& options, Effort& effort) {
  return ChainSearch(memory, family, options, effort).run();
}

}  // namespace regen::published
