#include "regen/published/lower_sets/lower_set_polish.h"

#include <utility>

#include "regen/published/lower_sets/lower_set_terms.h"

namespace regen::published {
namespace {

// Tries other chains that are equal in the model, one set at a time.
class ChainPolish {
 public:
  ChainPolish(const LowerSetNodes& nodes, const LowerSetFamily& family, Bytes budget,
              const ChainCost& executed)
      : nodes_(nodes),
        family_(family),
        budget_(budget),
        executed_(executed),
        tails_(nodes, family),
        walk_(family, /*all=*/true) {}

  std::vector<std::uint32_t> run(std::vector<std::uint32_t> chain) {
    chain_ = std::move(chain);
    coarsen();
    if (family_.complete()) exchange();
    return std::move(chain_);
  }

 private:
  static constexpr std::size_t kMaxTried = 64;  // sets between two others

  std::uint32_t before(std::size_t i) const { return i == 0 ? 0 : chain_[i - 1]; }
  bool fits(Bytes cached, std::uint32_t from, std::uint32_t to) {
    return cached + 2 * (family_.bytes(to) - family_.bytes(from)) + tails_.of(to) <= budget_;
  }
  // The gain over two blocks: through the set at place i now, or through another one.
  Gain through(std::size_t i, std::uint32_t set) const {
    const Gain low = gain(nodes_, family_, before(i), set);
    const Gain high = gain(nodes_, family_, set, chain_[i + 1]);
    return {low.cost + high.cost, low.bytes + high.bytes};
  }
  void coarsen();
  void exchange();

  const LowerSetNodes& nodes_;
  const LowerSetFamily& family_;
  Bytes budget_;
  const ChainCost& executed_;
  Tails tails_;
  TransitionWalk walk_;
  std::vector<std::uint32_t> chain_;
};

// Leaves out the sets that save nothing.
void ChainPolish::coarsen() {
  Bytes cached = 0;
  for (std::size_t i = 0; i + 1 < chain_.size();) {
    const Gain now = through(i, chain_[i]);
    const Gain without = gain(nodes_, family_, before(i), chain_[i + 1]);
    if (without.cost >= now.cost && without.bytes <= now.bytes &&
        fits(cached, before(i), chain_[i + 1])) {
      chain_.erase(chain_.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    cached += gain(nodes_, family_, before(i), chain_[i]).bytes;
    ++i;
  }
}

// Takes another set between two neighbours where that is cheaper to execute.
void ChainPolish::exchange() {
  Bytes cached = 0;
  double best = executed_(chain_);
  for (std::size_t i = 0; i + 1 < chain_.size(); ++i) {
    std::vector<std::uint32_t> others;
    walk_.run(before(i), [&](std::uint32_t set) {
      if (others.size() >= kMaxTried || set == chain_[i + 1] ||
          !family_.includes(chain_[i + 1], set)) {
        return false;
      }
      if (set != chain_[i]) others.push_back(set);
      return true;
    });
    for (std::uint32_t set : others) {
      const Gain now = through(i, chain_[i]);
      const Gain other = through(i, set);
      const Bytes added = gain(nodes_, family_, before(i), set).bytes;
      if (other.cost < now.cost || other.bytes > now.bytes || !fits(cached, before(i), set) ||
          !fits(cached + added, set, chain_[i + 1])) {
        continue;
      }
      const std::uint32_t old = std::exchange(chain_[i], set);
      const double cost = executed_(chain_);
      if (cost < best) {
        best = cost;
      } else {
        chain_[i] = old;
      }
    }
    cached += gain(nodes_, family_, before(i), chain_[i]).bytes;
  }
}

}  // namespace

PublishedStrategy polish_published(const LowerSetNodes& nodes, const LowerSetFamily& family,
                                   Bytes budget, PublishedStrategy strategy,
                                   const ChainCost& executed) {
  ChainPolish polish(nodes, family, budget, executed);
  return evaluate_published(nodes, family, polish.run(std::move(strategy.chain)));
}

}  // namespace regen::published
