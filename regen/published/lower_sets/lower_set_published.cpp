#include "regen/published/lower_sets/lower_set_published.h"
#include "regen/published/options.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "regen/published/lower_sets/drop_bound.h"
#include "regen/published/lower_sets/lower_set_terms.h"
#include "regen/published/lower_sets/pareto_front.h"
#include "regen/search/judge.h"

namespace regen::published {
namespace {

constexpr std::size_t kBeam = 8;

DropBound cached_bound(const LowerSetNodes& nodes) {
  std::vector<Bytes> bytes = nodes.bytes;
  std::vector<char> cacheable(nodes.size(), 0);
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    cacheable[node] = !nodes.successors[node].empty();
    if (!cacheable[node]) bytes[node] = 0;
  }
  return DropBound(std::move(bytes), nodes.costs, cacheable);
}

// Dynamic program over the sets in the order of their sizes. A state is a set, the cost saved
// and the bytes cached so far; of the states of a set, only those stay that no other one beats in
// both, and that may still beat the best chain known. Transitions are found from below and carried
// out from above, when a set's turn comes: then all states that lead to it are at hand, and one
// small table collects them.
class PublishedSearch {
 public:
  PublishedSearch(const LowerSetNodes& nodes, const LowerSetFamily& family, Effort& effort)
      : nodes_(nodes),
        family_(family),
        effort_(effort),
        tail_(Tails(nodes, family).all()),
        builder_(nodes.costs),
        bound_(cached_bound(nodes)) {}

  LowerSetAnswer solve(Bytes budget, Preference prefer);

 private:
  bool run();
  void reach(std::uint32_t set);
  void announce(std::uint32_t set, TransitionWalk& walk);
  void prune(std::uint32_t set);
  std::vector<std::uint32_t> chain_to(std::uint32_t label) const;
  std::span<const ParetoLabel> states(std::uint32_t set) const {
    return {labels_.data() + first_[set], labels_.data() + first_[set + 1]};
  }
  std::uint32_t last_set() const { return static_cast<std::uint32_t>(family_.size() - 1); }

  const LowerSetNodes& nodes_;
  const LowerSetFamily& family_;
  Effort& effort_;
  std::vector<Bytes> tail_;
  ParetoBuilder builder_;
  DropBound bound_;
  Bytes budget_ = 0;
  bool leanest_only_ = false;
  std::size_t beam_ = 0;  // at most so many states of a set are followed; 0: all
  bool thinned_ = false;
  double saved_above_ = -1;  // only chains that save more are wanted
  std::vector<ParetoLabel> labels_;
  std::vector<std::uint32_t> first_;
  std::vector<std::vector<std::uint32_t>> sources_;  // by target, until its turn
};

void PublishedSearch::reach(std::uint32_t set) {
  for (std::uint32_t from : sources_[set]) {
    const Gain added = gain(nodes_, family_, from, set);
    const Bytes room = budget_ - tail_[set] - 2 * (family_.bytes(set) - family_.bytes(from));
    std::uint32_t label = first_[from];
    for (const ParetoLabel& state : states(from)) {
      if (state.bytes > room) break;
      builder_.add(state.value + added.cost, state.bytes + added.bytes, label++);
    }
    effort_.add(1 + label - first_[from]);
  }
  sources_[set] = {};
  builder_.take(labels_, leanest_only_);
  if (!leanest_only_) prune(set);
}

// All that a chain caches must fit together, so that a state can save no more than what remains
// when the cheapest of the excess is given up.
void PublishedSearch::prune(std::uint32_t set) {
  const std::size_t begin = first_[set];
  if (labels_.size() == begin) return;
  bound_.prepare(family_[set]);
  std::vector<std::pair<double, std::size_t>> promise;
  for (std::size_t i = begin; i < labels_.size(); ++i) {
    const double lost = bound_.cost_of(labels_[i].bytes + bound_.bytes() - budget_);
    const double most = labels_[i].value + bound_.costs() - lost;
    if (most > saved_above_) promise.emplace_back(-most, i);
  }
  if (beam_ > 0 && promise.size() > beam_) {
    std::ranges::nth_element(promise, promise.begin() + static_cast<std::ptrdiff_t>(beam_));
    promise.resize(beam_);
    thinned_ = true;
    std::ranges::sort(promise, {}, &std::pair<double, std::size_t>::second);
  }
  std::size_t end = begin;
  for (const auto& [most, i] : promise) labels_[end++] = labels_[i];
  labels_.resize(end);
}

void PublishedSearch::announce(std::uint32_t set, TransitionWalk& walk) {
  const Bytes room = budget_ - labels_[first_[set]].bytes + 2 * family_.bytes(set);
  walk.run(set, [&](std::uint32_t to) {
    if (2 * family_.bytes(to) > room) return false;
    if (2 * family_.bytes(to) + tail_[to] <= room) sources_[to].push_back(set);
    return true;
  });
}

// False if the effort ran out.
bool PublishedSearch::run() {
  thinned_ = false;
  labels_.assign(1, {});
  first_.assign(1, 0);
  sources_.assign(family_.size(), {});
  TransitionWalk walk(family_);
  for (std::uint32_t set = 0; set <= last_set(); ++set) {
    if (set > 0) reach(set);
    first_.push_back(static_cast<std::uint32_t>(labels_.size()));
    if (first_[set] < first_[set + 1]) announce(set, walk);
    if (effort_.exhausted()) return false;
  }
  return true;
}

std::vector<std::uint32_t> PublishedSearch::chain_to(std::uint32_t label) const {
  std::vector<std::uint32_t> chain;
  for (; label != 0; label = labels_[label].parent) {
    const auto place = std::upper_bound(first_.begin(), first_.end(), label) - 1;
    chain.push_back(static_cast<std::uint32_t>(place - first_.begin()));
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

LowerSetAnswer PublishedSearch::solve(Bytes budget, Preference prefer) {
  budget_ = budget;
  leanest_only_ = prefer == Preference::kMemory;
  saved_above_ = -1;
  LowerSetAnswer answer;
  // First a narrow search: the better its chain, the more the wide one can leave out.
  for (const std::size_t beam : {kBeam, std::size_t{0}}) {
    beam_ = beam;
    if (!run()) return answer;
    if (!states(last_set()).empty()) {
      const std::uint32_t label = leanest_only_ ? first_[last_set()] : first_.back() - 1;
      saved_above_ = labels_[label].value;
      answer.strategy = evaluate_published(nodes_, family_, chain_to(label));
    }
    if (!thinned_) break;
  }
  answer.proven = true;
  return answer;
}

}  // namespace

PublishedStrategy evaluate_published(const LowerSetNodes& nodes, const LowerSetFamily& family,
                                     std::vector<std::uint32_t> chain) {
  PublishedStrategy result;
  Tails tails(nodes, family);
  for (double cost : nodes.costs) result.overhead += cost;
  std::uint32_t from = 0;
  for (std::uint32_t set : chain) {
    const Bytes block = family.bytes(set) - family.bytes(from);
    result.peak = std::max(result.peak, result.cached + 2 * block + tails.of(set));
    const Gain added = gain(nodes, family, from, set);
    result.overhead -= added.cost;
    result.cached += added.bytes;
    from = set;
  }
  result.chain = std::move(chain);
  return result;
}

LowerSetAnswer solve_published(const LowerSetNodes& nodes, const LowerSetFamily& family,
                               Bytes budget, Preference prefer, Effort& effort) {
  return PublishedSearch(nodes, family, effort).solve(budget, prefer);
}

std::optional<Bytes> smallest_published_budget(const LowerSetNodes& nodes,
                                               const LowerSetFamily& family, Effort& effort) {
  PublishedSearch search(nodes, family, effort);
  // One block for everything always works with twice all bytes.
  Bytes low = 0;
  Bytes high = 2 * family.bytes(family.size() - 1);
  while (low < high) {
    const Bytes middle = low + (high - low) / 2;
    const LowerSetAnswer answer = search.solve(middle, Preference::kMemory);
    if (!answer.proven) return std::nullopt;
    if (answer.strategy) {
      high = std::min(middle, answer.strategy->peak);
    } else {
      low = middle + 1;
    }
  }
  return high;
}

std::vector<std::uint32_t> published_cuts(const LowerSetFamily& cuts) {
  std::vector<std::uint32_t> chain;
  const auto whole = static_cast<std::uint32_t>(cuts.size() - 1);
  const auto parts = static_cast<Bytes>(std::sqrt(static_cast<double>(std::max(whole, 1u) - 1)));
  std::uint32_t cut = 1;
  for (Bytes part = 1; part <= parts; ++part) {
    while (cuts.bytes(cut) * parts < cuts.bytes(whole - 1) * part) ++cut;
    if (chain.empty() || chain.back() != cut) chain.push_back(cut);
  }
  if (chain.empty() || chain.back() != whole) chain.push_back(whole);
  return chain;
}

}  // namespace regen::published
