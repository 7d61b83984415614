#include "regen/graph/format_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regen {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

TEST(FormatOrder, TakesTheSmallestPriorityThatMayComeNext) {
  // 0 -> 2 and 1 -> 2; 1 comes first by priority, 3 is free but last.
  const std::vector<std::uint64_t> priorities{5, 4, 0, 9};
  const auto sorted = topological_order(priorities, Edges{{0, 2}, {1, 2}});
  EXPECT_THAT(sorted.order, ElementsAre(1, 0, 2, 3));
  EXPECT_THAT(sorted.cycle, IsEmpty());
}

TEST(FormatOrder, BreaksTiesByNumberAndCountsParallelEdges) {
  const std::vector<std::uint64_t> priorities(4, 0);
  EXPECT_THAT(topological_order(priorities, Edges{{3, 0}, {3, 0}}).order, ElementsAre(1, 2, 3, 0));
}

TEST(FormatOrder, FindsACycleBehindATail) {
  // 4 -> 1 -> 2 -> 3 -> 1, and 3 -> 0 hangs off the cycle.
  const std::vector<std::uint64_t> priorities(5, 0);
  const auto sorted = topological_order(priorities, Edges{{4, 1}, {1, 2}, {2, 3}, {3, 1}, {3, 0}});
  EXPECT_THAT(sorted.order, ElementsAre(4));
  ASSERT_EQ(sorted.cycle.size(), 3u);
  const Edges edges{{1, 2}, {2, 3}, {3, 1}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(edges, ::testing::Contains(std::pair(sorted.cycle[i], sorted.cycle[(i + 1) % 3])));
  }
}

TEST(FormatOrder, FindsANodeThatFollowsItself) {
  const std::vector<std::uint64_t> priorities(2, 0);
  EXPECT_THAT(topological_order(priorities, Edges{{1, 1}}).cycle, ElementsAre(1));
}

TEST(FormatOrder, SortsNothing) {
  const auto sorted = topological_order({}, {});
  EXPECT_THAT(sorted.order, IsEmpty());
  EXPECT_THAT(sorted.cycle, IsEmpty());
}

}  // namespace
}  // namespace regen
