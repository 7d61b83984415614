#include "regen/base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace regen {
namespace {

TEST(ParallelFor, RunsEachPieceOnce) {
  for (int threads : {0, 1, 2, 7}) {
    std::vector<int> runs(100, 0);
    parallel_for(runs.size(), threads, [&](std::size_t i) { ++runs[i]; });
    EXPECT_EQ(runs, std::vector<int>(100, 1)) << threads << " threads";
  }
}

TEST(ParallelFor, DoesNothingForNoPieces) {
  parallel_for(0, 4, [](std::size_t) { FAIL(); });
}

TEST(ParallelFor, OneThreadKeepsTheOrder) {
  std::vector<std::size_t> order;
  parallel_for(5, 1, [&](std::size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(ParallelFor, ThrowsWhatAPieceThrewAndBeginsNoMore) {
  std::atomic<int> begun = 0;
  const auto body = [&](std::size_t i) {
    ++begun;
    if (i == 3) throw std::runtime_error("piece 3");
  };
  EXPECT_THROW(parallel_for(1'000'000, 1, body), std::runtime_error);
  EXPECT_EQ(begun, 4);
  EXPECT_THROW(parallel_for(1'000, 4, body), std::runtime_error);
}

TEST(AvailableThreads, IsPositive) {
  EXPECT_GE(available_threads(), 1);
}

}  // namespace
}  // namespace regen
