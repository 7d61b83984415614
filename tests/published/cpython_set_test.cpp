#include "regen/published/checkmate/cpython_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regen::published {
namespace {

using ::testing::ElementsAre;
using Numbers = std::vector<std::size_t>;

constexpr auto kMinusOne = static_cast<std::size_t>(-1);
constexpr auto kMinusTwo = static_cast<std::size_t>(-2);

CPythonIntSet set_of(const Numbers& numbers) {
  CPythonIntSet set;
  for (std::size_t number : numbers) set.add(number);
  return set;
}

struct Case {
  Numbers inserted;
  Numbers walked;  // printed by CPython 3.11
};

TEST(CPythonIntSet, WalksAsCPythonDoes) {
  const std::vector<Case> cases = {
      {{}, {}},
      {{8, 0}, {8, 0}},
      {{0, 8}, {0, 8}},
      {{7, 15, 23}, {15, 23, 7}},
      {{6, 14, 7}, {7, 6, 14}},
      {{3, 11, 19, 27}, {11, 19, 3, 27}},
      {{20, 15, 10, 5, 0}, {0, 5, 10, 15, 20}},
      {{100, 1, 50, 33, 65, 129, 193}, {65, 1, 33, 100, 129, 193, 50}},
      {{0, 32, 64, 96, 128, 160, 192, 224}, {0, 32, 64, 96, 128, 160, 192, 224}},
      {{9, 8, 7, 6, 5, 4, 3, 2, 1, 0}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
      {{63, 31, 95, 127, 159, 191, 1, 2, 3}, {191, 1, 2, 3, 127, 31, 63, 95, 159}},
      {{175, 3, 128, 131, 5, 133, 64, 40, 90, 17, 150, 170, 20, 22, 38},
       {128, 64, 3, 131, 5, 133, 38, 40, 170, 175, 17, 20, 150, 22, 90}},
      {{0,    579,  1158, 1737, 2316, 2895, 3474, 4053, 536,  1115, 1694, 2273,
        2852, 3431, 4010, 493,  1072, 1651, 2230, 2809, 3388, 3967, 450,  1029},
       {0,   1029, 1158, 2316, 3474, 536,  1694, 2852, 4010, 1072, 2230, 3388,
        450, 579,  1737, 2895, 4053, 1115, 2273, 3431, 493,  1651, 2809, 3967}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(set_of(c.inserted).iteration_order(), c.walked)
        << ::testing::PrintToString(c.inserted);
  }
}

TEST(CPythonIntSet, KeepsEachNumberOnce) {
  CPythonIntSet set = set_of({5, 13, 5, 13, 5});
  EXPECT_EQ(set.size(), 2u);
  EXPECT_THAT(set.iteration_order(), ElementsAre(13, 5));
}

// -1 hashes as -2, so the two take the same way through the table.
TEST(CPythonIntSet, TakesNegativeNumbers) {
  EXPECT_THAT(set_of({kMinusOne, kMinusTwo}).iteration_order(), ElementsAre(kMinusOne, kMinusTwo));
  EXPECT_THAT(set_of({kMinusTwo, kMinusOne}).iteration_order(), ElementsAre(kMinusTwo, kMinusOne));
}

// A copy has a table of its own size: 1 goes to a free slot before the 66 in slot 2.
TEST(CPythonIntSet, UnionWalksAsCPythonDoes) {
  const CPythonIntSet ends = set_of({kMinusOne, kMinusTwo});
  EXPECT_THAT(set_of({8, 0}).union_with(ends).iteration_order(),
              ElementsAre(8, 0, kMinusOne, kMinusTwo));
  const CPythonIntSet set = set_of({66, 2, 34, 98, 130});
  EXPECT_THAT(set.iteration_order(), ElementsAre(66, 2, 34, 98, 130));
  EXPECT_THAT(set.union_with(ends).iteration_order(),
              ElementsAre(66, 2, 34, 98, 130, kMinusTwo, kMinusOne));
  EXPECT_THAT(set.union_with(set_of({1})).iteration_order(), ElementsAre(1, 66, 2, 34, 98, 130));
}

// Beyond 50,000 numbers the table grows more slowly. The sum was printed by CPython 3.11.
TEST(CPythonIntSet, WalksLargeSetsAsCPythonDoes) {
  CPythonIntSet set;
  for (std::size_t i = 0; i < 60'000; ++i) set.add(i * 7919 % 1'000'003);
  std::uint32_t sum = 0;
  for (std::size_t number : set.iteration_order()) {
    sum = sum * 31 + static_cast<std::uint32_t>(number);
  }
  EXPECT_EQ(sum, 3569517319u);
}

}  // namespace
}  // namespace regen::published
