#include "regen/published/checkmate/set_order.h"

#include <gtest/gtest.h>

#include "regen/base/random.h"
#include "regen/graph/builder.h"
#include "tests/support/graphs/forward_graphs.h"

namespace regen::published {
namespace {

using testing::Arguments;
using testing::chain;
using testing::forward_graph;
using testing::Ids;
using testing::ids;
using testing::kDiamond;
using testing::random_arguments;

TEST(UndirectedDfsOrder, IsAscendingOnAChain) {
  const Ids order = ids(undirected_dfs_order(forward_graph(chain(200))));
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
}

// Expected orders as the same search gives in CPython 3.11. In the second graph op 0 feeds 1, 8
// and 9, and the set {1, 8, 9} is walked 8, 1, 9.
TEST(UndirectedDfsOrder, WalksNeighboursAsCPythonDoes) {
  EXPECT_EQ(ids(undirected_dfs_order(forward_graph(kDiamond))), (Ids{0, 1, 3, 4, 2}));
  const Arguments skips = {{}, {0}, {1}, {2}, {3}, {4}, {5}, {6}, {0, 7}, {0, 8}};
  EXPECT_EQ(ids(undirected_dfs_order(forward_graph(skips))), (Ids{0, 8, 7, 6, 5, 4, 3, 2, 1, 9}));
  const Arguments nested = {{}, {0}, {0}, {1}, {2}, {3, 4}, {5}, {6}, {0}, {7, 8}, {9}};
  EXPECT_EQ(ids(undirected_dfs_order(forward_graph(nested))),
            (Ids{0, 8, 9, 7, 6, 5, 4, 2, 3, 1, 10}));
}

TEST(UndirectedDfsOrder, HasEveryForwardOpOnce) {
  Random random(3);
  for (int trial = 0; trial < 50; ++trial) {
    const Graph graph = forward_graph(random_arguments(random, 40));
    Ids order = ids(undirected_dfs_order(graph));
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, ids(graph.ops()));
  }
}

// 180 ops in a chain in which every fifth also reads the op four before it. The 75 points lie in
// a table of 128 slots, so those from 128 on come between the others. Order printed by CPython.
TEST(SetOrder, InterleavesHighIds) {
  Arguments arguments = chain(180);
  for (std::size_t i = 5; i < arguments.size(); i += 5) arguments[i].push_back(i - 4);
  const Graph graph = forward_graph(arguments);
  const Ids expected = {0,   1,   130, 131, 5,   6,   135, 136, 10,  11,  140, 141, 15,  16,  145,
                        146, 20,  21,  150, 151, 25,  26,  155, 156, 30,  31,  160, 161, 35,  36,
                        165, 166, 40,  41,  170, 171, 45,  46,  175, 176, 177, 50,  51,  178, 179,
                        55,  56,  60,  61,  65,  66,  70,  71,  75,  76,  80,  81,  85,  86,  90,
                        91,  95,  96,  100, 101, 105, 106, 110, 111, 115, 116, 120, 121, 125, 126};
  EXPECT_EQ(ids(articulation_points_in_set_order(graph)), expected);
  EXPECT_EQ(ids(connected_forward_ops_in_set_order(graph)), ids(graph.ops()));
}

// Deep graphs must not use the machine's stack, and everything must be linear.
TEST(SetOrder, HandlesAHundredThousandOps) {
  const std::size_t n = 100'000;
  Arguments arguments = chain(n);
  for (std::size_t i = 2; i < n; i += 2) arguments[i].push_back(0);  // one op with many readers
  const Graph graph = forward_graph(arguments);
  EXPECT_EQ(undirected_dfs_order(graph).size(), n);
  EXPECT_EQ(articulation_points_in_set_order(graph).size(), 3u);
}

}  // namespace
}  // namespace regen::published
