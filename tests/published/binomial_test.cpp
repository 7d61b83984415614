// The dynamic program against exhaustive search over the same rules, on small chains.
#include "regen/published/baselines/binomial.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "regen/base/random.h"

namespace regen::published {
namespace {

// Least cost of re-runs, by trying at every reversal which values to store on the way. What is
// stored is a set of positions (position 0 is the input, j + 1 is block j); a position is dropped
// when the one before it has been reversed. Situations that come up again are looked up.
class StoreSearch {
 public:
  StoreSearch(const std::vector<double>& costs, std::size_t slots) : costs_(costs), slots_(slots) {}

  double run() { return least({0}, costs_.size(), true); }

 private:
  // The cost from here on; `next` is to be reversed, `above_there` if next + 1 needs no run.
  double least(const std::vector<std::size_t>& stored, std::size_t next, bool above_there) {
    if (next == 0) return 0;
    const auto [known, is_new] = known_.try_emplace({stored, next, above_there}, 0.0);
    if (!is_new) return known->second;
    return known->second = try_all(stored, next, above_there);
  }

  double try_all(const std::vector<std::size_t>& stored, std::size_t next, bool above_there) {
    // Reversing `next` needs its value and that of next + 1; storing is of use up to `next`.
    const std::size_t target = above_there ? next : next + 1;
    const std::size_t from = stored.back();
    double run = 0;
    for (std::size_t p = from + 1; p <= target; ++p) run += costs_[p - 1];
    const std::size_t choices = next > from ? next - from : 0;
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t mask = 0; mask < (std::size_t{1} << choices); ++mask) {
      std::vector<std::size_t> now = stored;
      for (std::size_t i = 0; i < choices; ++i) {
        if (mask >> i & 1) now.push_back(from + 1 + i);
      }
      if (now.size() - 1 > slots_) continue;
      // After reversing `next`, its stored value serves the reversal before it and goes then.
      const bool has_next = now.back() == next;
      if (has_next) now.pop_back();
      best = std::min(best, run + least(now, next - 1, has_next));
    }
    return best;
  }

  const std::vector<double>& costs_;
  const std::size_t slots_;
  std::map<std::tuple<std::vector<std::size_t>, std::size_t, bool>, double> known_;
};

TEST(Binomial, NoSlotsCostsEverySweep) {
  // Blocks of cost 1, 2, 4: the first sweep is the forward pass. Reversing block 1 needs blocks
  // 0..2 again (7), reversing block 0 needs blocks 0..1 (3).
  EXPECT_EQ(BinomialTable({1, 2, 4}, 0).extra_cost(0), 10);
}

TEST(Binomial, EnoughSlotsCostNothing) {
  // With one slot for each block everything is stored in the first sweep; each reversal but the
  // last still finds its own value and its consumer's.
  EXPECT_EQ(BinomialTable({1, 2, 4}, 3).extra_cost(3), 0);
}

TEST(Binomial, UnitChainsGrowAsPublished) {
  // More slots never cost more.
  const BinomialTable table(std::vector<double>(40, 1.0), 12);
  for (std::size_t slots = 1; slots <= 12; ++slots) {
    EXPECT_LE(table.extra_cost(slots), table.extra_cost(slots - 1));
  }
}

// All 2,000 chains take a while; REGEN_EXHAUSTIVE=1 asks for them.
TEST(Binomial, EqualsExhaustiveSearch) {
  const bool all = std::getenv("REGEN_EXHAUSTIVE") != nullptr;
  for (std::uint64_t round = 0; round < 2000; round += all ? 1 : 10) {
    Random random(round);
    const auto blocks = static_cast<std::size_t>(random.between(1, 9));
    std::vector<double> costs;
    for (std::size_t i = 0; i < blocks; ++i)
      costs.push_back(static_cast<double>(random.between(0, 9)));
    const BinomialTable table(costs, blocks);
    const double forward = std::accumulate(costs.begin(), costs.end(), 0.0);
    for (std::size_t slots = 0; slots <= blocks; ++slots) {
      EXPECT_EQ(table.extra_cost(slots), StoreSearch(costs, slots).run() - forward)
          << "round " << round << ", " << slots << " slots";
    }
  }
}

TEST(Binomial, ScheduleStoresEachBlockOnceAtATime) {
  const BinomialTable table({3, 1, 4, 1, 5, 9, 2, 6}, 3);
  const auto schedule = table.schedule(3);
  ASSERT_FALSE(schedule.empty());
  EXPECT_EQ(schedule.front().from, 8u);  // the first sweep is the forward pass
  for (const StoredBlock& stored : schedule) EXPECT_LE(stored.block, stored.from);
}

}  // namespace
}  // namespace regen::published
