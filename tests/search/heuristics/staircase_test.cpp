#include "regen/search/heuristics/staircase.h"

#include <gtest/gtest.h>

#include "regen/base/random.h"

namespace regen::search {
namespace {

// From 3 bytes on it costs 9, from 5 on 4, from 9 on 1.
const Staircase kStairs{{3, 9}, {5, 4}, {9, 1}};

TEST(Staircase, CostsAreThoseOfTheLastCornerReached) {
  EXPECT_EQ(cost_at(kStairs, 2), kImpossible);
  EXPECT_EQ(cost_at(kStairs, 3), 9);
  EXPECT_EQ(cost_at(kStairs, 8), 4);
  EXPECT_EQ(cost_at(kStairs, 100), 1);
}

TEST(Staircase, ThinningOnlyEverNeedsMoreBytes) {
  Staircase thinned{{1, 9}, {2, 8}, {3, 7}, {4, 6}, {5, 5}, {6, 4}, {7, 3}};
  const Staircase before = thinned;
  thin(thinned, 3);
  EXPECT_EQ(thinned, (Staircase{{1, 9}, {4, 6}, {7, 3}}));
  for (Bytes bytes = 0; bytes < 9; ++bytes) {
    EXPECT_GE(cost_at(thinned, bytes), cost_at(before, bytes));
  }
}

Staircase random_stairs(Random& random) {
  Staircase stairs;
  Corner corner{random.between(0, 5), static_cast<double>(random.between(20, 40))};
  for (std::int64_t i = random.between(1, 6); i > 0; --i) {
    stairs.push_back(corner);
    corner.bytes += random.between(1, 4);
    corner.cost -= static_cast<double>(random.between(1, 3));
  }
  return stairs;
}

// At every number of bytes the minimum over the ways, as far as it is within the limits.
TEST(Staircase, TheMinimumIsThatOfAllWaysAtEveryByte) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    constexpr Bytes kBudget = 30;
    const double most = seed % 2 == 0 ? kImpossible : static_cast<double>(random.between(30, 80));
    std::vector<Staircase> parts;
    parts.reserve(8);
    for (int i = 0; i < 8; ++i) parts.push_back(random_stairs(random));
    StairMinimum minimum;
    minimum.start(kBudget, most);
    std::vector<StairSum> ways;
    for (int i = 0; i < 6; ++i) {
      const auto part = [&]() -> const Staircase* {
        return random.chance(0.2) ? nullptr
                                  : &parts[static_cast<std::size_t>(random.between(0, 7))];
      };
      ways.push_back({.bytes = random.between(0, 15),
                      .cost = static_cast<double>(random.between(0, 9)),
                      .first = part(),
                      .first_held = random.between(0, 5),
                      .second = part(),
                      .second_held = random.between(0, 5)});
      minimum.add(ways.back());
    }
    for (Bytes bytes = 0; bytes <= kBudget; ++bytes) {
      double least = kImpossible;
      for (const StairSum& way : ways) least = std::min(least, cost_at(way, bytes));
      EXPECT_EQ(cost_at(minimum.best(), bytes), least <= most ? least : kImpossible)
          << "seed " << seed << ", " << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace regen::search
