// Quanta against a brute-force search over all ways to cut, and the times they are made of.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "regen/execute/run/quanta.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

using Starts = std::vector<std::size_t>;

TEST(Quanta, AreAsLongAsTheBoundAllows) {
  EXPECT_EQ(cut_quanta(std::vector<double>{}, 1), Starts{});
  EXPECT_EQ(cut_quanta(std::vector<double>{0}, 1), Starts{0});
  EXPECT_EQ(cut_quanta(std::vector<double>{.4, .3, 0, .5, 2, 0, .1}, 1), (Starts{0, 3, 4, 6}));
  EXPECT_EQ(cut_quanta(std::vector<double>{.5, .5, .5}, 1), (Starts{0, 2}));
  // What takes no time never makes a quantum of its own, also before something long.
  EXPECT_EQ(cut_quanta(std::vector<double>{0, 0, 3, 0, 3, 0}, 1), (Starts{0, 4}));
}

// Whether [first, last) may be one quantum: within the bound, or one long instruction among others
// that take no time.
bool may_be_one(const std::vector<double>& seconds, std::size_t first, std::size_t last,
                double bound) {
  const auto begin = seconds.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = seconds.begin() + static_cast<std::ptrdiff_t>(last);
  const auto timed = std::count_if(begin, end, [](double s) { return s > 0; });
  return timed <= 1 || std::accumulate(begin, end, 0.0) <= bound;
}

// The least number of quanta by trying every cut: bit i of `cuts` means a quantum begins at i + 1.
std::size_t fewest(const std::vector<double>& seconds, double bound) {
  std::size_t best = seconds.size();
  for (unsigned cuts = 0; cuts < 1U << (seconds.size() - 1); ++cuts) {
    std::size_t first = 0;
    std::size_t count = 0;
    bool good = true;
    for (std::size_t i = 1; i <= seconds.size() && good; ++i) {
      if (i < seconds.size() && (cuts >> (i - 1) & 1U) == 0) continue;
      good = may_be_one(seconds, first, i, bound);
      first = i;
      ++count;
    }
    if (good) best = std::min(best, count);
  }
  return best;
}

TEST(Quanta, BruteForceFindsNoFewer) {
  std::mt19937 random(7);
  const double bound = 8;
  for (int round = 0; round < 2000; ++round) {
    std::vector<double> seconds(1 + random() % 11);
    // Whole numbers, so that sums are exact: 0 often, up to above the bound.
    for (double& s : seconds) s = random() % 3 == 0 ? 0 : static_cast<double>(random() % 12);
    const Starts starts = cut_quanta(seconds, bound);
    ASSERT_EQ(starts.front(), 0U);
    for (std::size_t w = 0; w < starts.size(); ++w) {
      const std::size_t last = w + 1 < starts.size() ? starts[w + 1] : seconds.size();
      ASSERT_LT(starts[w], last);
      ASSERT_TRUE(may_be_one(seconds, starts[w], last, bound)) << round;
    }
    ASSERT_EQ(starts.size(), fewest(seconds, bound)) << round;
  }
}

// All computes of a plan are predicted, with the plan's own variants and second runs: the sum is
// what the judge says a plan without movement costs.
TEST(Quanta, PredictedTimesAddUpToTheSimulatedOnes) {
  StepFixture fixture(make_chain({.layers = 5, .batch_norm = true, .update = true}));
  for (const char* planner : {"keep_all", "chen_sqrt", "auto"}) {
    const search::Outcome outcome =
        planner == std::string("auto") ? fixture.tightest(planner) : fixture.solve(planner);
    ASSERT_TRUE(outcome.plan);
    if (outcome.simulation.offloaded_bytes > 0) continue;  // its cost has stalls in it
    const auto memory = plan_memory(fixture.graph(), *outcome.plan, 64);
    ASSERT_TRUE(memory.ok());
    std::vector<std::byte> arena(static_cast<std::size_t>(memory->arena + 4096));
    const auto list = make_instructions(fixture.recording(), fixture.step(), *outcome.plan, *memory,
                                        {.arena = arena.data()});
    ASSERT_TRUE(list.ok()) << list.error().message;
    const auto seconds = predicted_seconds(*list, fixture.graph(), *outcome.plan);
    EXPECT_EQ(seconds.size(), list->instructions.size());
    EXPECT_NEAR(std::accumulate(seconds.begin(), seconds.end(), 0.0), outcome.simulation.cost,
                1e-9 * outcome.simulation.cost)
        << planner;
  }
}

// Against a list of what is there, looked through each time.
void expect_bounded(double times) {
  std::mt19937 random(11);
  const double bound = 10 * times;
  IssuedWork issued(10);
  std::vector<double> there;
  const auto allowed = [&](std::size_t from, double next) {
    const double together =
        std::accumulate(there.begin() + static_cast<std::ptrdiff_t>(from), there.end(), next);
    const std::size_t others = there.size() - from;
    return others == 0 || together <= bound || (others == 1 && together <= 2 * bound);
  };
  std::size_t waited = 0;
  std::size_t most = 0;
  for (int round = 0; round < 5000; ++round) {
    const auto next = static_cast<double>(random() % 10 == 0 ? random() % 30 : random() % 6);
    const std::size_t done = issued.in_the_way_of(next, times);
    ASSERT_LE(done, there.size());
    EXPECT_TRUE(allowed(done, next));
    if (done > 0) {
      EXPECT_FALSE(allowed(done - 1, next)) << "the last one waited for was in the way";
    }
    waited += done;
    for (std::size_t i = 0; i < done; ++i) issued.finish_oldest();
    there.erase(there.begin(), there.begin() + static_cast<std::ptrdiff_t>(done));
    issued.issue(next, 0);
    there.push_back(next);
    most = std::max(most, there.size());
    if (random() % 50 == 0) {
      for (; !there.empty(); there.pop_back()) issued.finish_oldest();
    }
  }
  EXPECT_GT(waited, 1000U);
  EXPECT_GT(static_cast<double>(most), 3 * times);
}

TEST(Quanta, WhatIsOnTheDeviceTogetherIsBounded) {
  expect_bounded(1);
  expect_bounded(kUnhurried);
}

TEST(Quanta, EndOneAfterTheOther) {
  IssuedWork issued(10);
  issued.issue(3, 100);
  issued.issue(4, 101);  // begins at 103
  EXPECT_EQ(issued.expected_end(), 103);
  issued.finish_oldest();
  EXPECT_EQ(issued.expected_end(), 107);
  issued.issue(1, 200);
  issued.finish_oldest();
  EXPECT_EQ(issued.expected_end(), 201) << "the device was idle until then";
}

}  // namespace
}  // namespace regen::execute
