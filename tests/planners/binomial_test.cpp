// The dynamic program against exhaustive search over the same rules, on small chains.
#include "regen/planners/binomial.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "regen/base/random.h"

namespace regen {
namespace {

// Least cost of re-runs, by trying at every reversal which values to store on the way. `stored`
// holds the positions whose values are there (position 0 is the input, j + 1 is block j); a
// position is dropped when the one before it has been reversed.
double search(const std::vector<double>& f, std::vector<std::size_t> stored, std::size_t next,
              std::size_t slots, bool above_there) {
  if (next == 0) return 0;
  // Reversing `next` needs its value and that of next + 1.
  const std::size_t target = above_there ? next : next + 1;
  const std::size_t from = stored.back();
  double best = std::numeric_limits<double>::infinity();
  const std::size_t between = target > from ? target - from : 0;
  for (std::size_t mask = 0; mask < (std::size_t{1} << between); ++mask) {
    // Bit i stores position from + 1 + i; only positions up to `next` are of use.
    std::vector<std::size_t> now = stored;
    for (std::size_t i = 0; i < between; ++i) {
      if ((mask >> i & 1) && from + 1 + i <= next) now.push_back(from + 1 + i);
      if ((mask >> i & 1) && from + 1 + i > next) now.clear();
      if (now.empty()) break;
    }
    if (now.empty() || now.size() - 1 > slots) continue;
    double cost = 0;
    for (std::size_t p = from + 1; p <= target; ++p) cost += f[p - 1];
    // After reversing `next`, its stored value serves the reversal before it and goes then.
    const bool has_next = now.back() == next && next > 0;
    std::vector<std::size_t> after = now;
    if (has_next) after.pop_back();
    best = std::min(best, cost + search(f, after, next - 1, slots, has_next));
  }
  return best;
}

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

TEST(Binomial, EqualsExhaustiveSearch) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const auto blocks = static_cast<std::size_t>(random.between(1, 6));
    std::vector<double> costs;
    for (std::size_t i = 0; i < blocks; ++i)
      costs.push_back(static_cast<double>(random.between(1, 9)));
    const BinomialTable table(costs, blocks);
    const double forward = std::accumulate(costs.begin(), costs.end(), 0.0);
    for (std::size_t slots = 0; slots <= blocks; ++slots) {
      EXPECT_EQ(table.extra_cost(slots), search(costs, {0}, blocks, slots, true) - forward)
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
}  // namespace regen
