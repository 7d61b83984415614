#include "regen/share/scheduler/split.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "regen/base/random.h"

namespace regen::share {
namespace {

// The sums of time for each level, highest priority first.
std::vector<Nanoseconds> level_times(const std::vector<SplitJob>& jobs,
                                     const std::vector<std::size_t>& chosen) {
  std::map<std::int64_t, Nanoseconds, std::greater<>> sums;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    sums[jobs[i].priority] += jobs[i].points[chosen[i]].time;
  }
  std::vector<Nanoseconds> times;
  times.reserve(sums.size());
  for (const auto& [priority, sum] : sums) times.push_back(sum);
  return times;
}

Bytes bytes_of(const std::vector<SplitJob>& jobs, const std::vector<std::size_t>& chosen) {
  Bytes sum = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) sum += jobs[i].points[chosen[i]].bytes;
  return sum;
}

// Tries every choice; empty when none fits.
std::vector<std::size_t> brute_force(const std::vector<SplitJob>& jobs, Bytes capacity) {
  std::vector<std::size_t> choice(jobs.size(), 0);
  std::vector<std::size_t> best;
  const auto rank = [&](const std::vector<std::size_t>& chosen) {
    return std::pair(level_times(jobs, chosen), bytes_of(jobs, chosen));
  };
  while (true) {
    if (bytes_of(jobs, choice) <= capacity && (best.empty() || rank(choice) < rank(best))) {
      best = choice;
    }
    std::size_t at = 0;
    while (at < jobs.size() && ++choice[at] == jobs[at].points.size()) choice[at++] = 0;
    if (at == jobs.size()) return best;
  }
}

std::vector<SplitJob> random_jobs(Random& random) {
  std::vector<SplitJob> jobs(static_cast<std::size_t>(random.between(1, 5)));
  for (SplitJob& job : jobs) {
    job.priority = random.between(0, 2);
    for (auto count = random.between(1, 4); count > 0; --count) {
      job.points.push_back({random.between(0, 30), random.between(0, 20)});
    }
  }
  return jobs;
}

TEST(Split, IsAsGoodAsTryingEverything) {
  Random random(1);
  int feasible = 0;
  for (int round = 0; round < 2000; ++round) {
    const auto jobs = random_jobs(random);
    const Bytes capacity = random.between(0, 100);
    const auto expected = brute_force(jobs, capacity);
    const auto found = split(jobs, capacity);
    ASSERT_EQ(found.ok(), !expected.empty());
    if (!found.ok()) continue;
    ++feasible;
    EXPECT_EQ(level_times(jobs, found->chosen), level_times(jobs, expected));
    EXPECT_EQ(bytes_of(jobs, found->chosen), bytes_of(jobs, expected));
    EXPECT_EQ(found->bytes, bytes_of(jobs, found->chosen));
    EXPECT_LE(found->bytes, capacity);
  }
  EXPECT_GT(feasible, 500);
  EXPECT_LT(feasible, 2000);
}

TEST(Split, ServesTheHigherPriorityFirst) {
  // Either job could have the 10 bytes more. The low one would win 100 by them, the high one 1.
  const std::vector<SplitJob> jobs{{0, {{10, 200}, {20, 100}}}, {1, {{10, 2}, {20, 1}}}};
  const auto found = split(jobs, 30);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->chosen, (std::vector<std::size_t>{0, 1}));
}

TEST(Split, SaysWhatTheLeastBytesAre) {
  const auto found = split({{0, {{10, 1}}}, {0, {{30, 1}, {25, 2}}}}, 34);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kInfeasible);
  EXPECT_EQ(found.error().message, "the least bytes of 2 jobs sum to 35, expected at most 34");
}

TEST(Split, GranulesNeverOvercommit) {
  Random random(2);
  for (int round = 0; round < 500; ++round) {
    const auto jobs = random_jobs(random);
    const auto found = split(jobs, 64, 8);
    if (!found.ok()) continue;
    EXPECT_LE(found->bytes, 64);
  }
}

// Thirty years in nanoseconds: ten of them are more than fit.
TEST(Split, SumsOfTimesDoNotOverflow) {
  constexpr Nanoseconds kLong = 1'000'000'000'000'000'000;
  const std::vector<SplitJob> jobs(40, {.points = {{2, kLong - 1}, {1, kLong}}});
  const auto found = split(jobs, 60);
  ASSERT_TRUE(found.ok());
  EXPECT_LE(found->bytes, 60);
  EXPECT_EQ(found->time, kNever);
  const auto few = split({jobs.begin(), jobs.begin() + 4}, 6);
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->time, 4 * kLong - 2);
}

TEST(Split, OfNobodyTakesNothing) {
  const auto found = split({}, 10);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->bytes, 0);
}

}  // namespace
}  // namespace regen::share
