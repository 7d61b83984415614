// Percentiles of a histogram of fixed size, beside all times kept and sorted.
#include "regen/share/report/recent_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "regen/base/random.h"
#include "regen/share/scheduler/device_queue.h"

namespace regen::share {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr Nanoseconds kUnit = 1'024;  // below, times are told apart by this much

// The least value that so many per cent do not exceed, by sorting.
Nanoseconds exact(std::vector<Nanoseconds> times, int percent) {
  std::sort(times.begin(), times.end());
  std::size_t place = 0;
  while (100 * (place + 1) < percent * times.size()) ++place;
  return times[place];
}

// One part in 32, or the unit.
void expect_near(Nanoseconds found, Nanoseconds wanted) {
  EXPECT_LE(std::abs(found - wanted), std::max<Nanoseconds>(kUnit, wanted / 32 + 1))
      << found << " for " << wanted;
}

void expect_near(const std::optional<Percentiles>& found, const std::vector<Nanoseconds>& times) {
  ASSERT_TRUE(found.has_value());
  expect_near(found->p50, exact(times, 50));
  expect_near(found->p95, exact(times, 95));
}

TEST(RecentTimes, KnowsNothingAtFirst) {
  const RecentTimes times;
  EXPECT_EQ(times.percentiles(5), std::nullopt);
  EXPECT_EQ(times.count(5), 0);
}

TEST(RecentTimes, OneTimeIsAllPercentiles) {
  // From nothing to longer than an hour, at the edges of every octave.
  for (Nanoseconds time = 1; time < 5 * 3600 * kSecond; time *= 2) {
    for (const Nanoseconds near : {time - 1, time, time + 1}) {
      RecentTimes times;
      times.add(near, 0);
      expect_near(times.percentiles(0), {near});
    }
  }
}

TEST(RecentTimes, WhatIsTooLongOrNegativeCountsAsTheEnds) {
  RecentTimes times;
  times.add(-5, 0);
  EXPECT_EQ(times.percentiles(0)->p50, 0);
  times.add(INT64_MAX, 0);
  times.add(INT64_MAX, 0);
  EXPECT_GT(times.percentiles(0)->p50, 4 * 3600 * kSecond);
}

TEST(RecentTimes, AsSortingAll) {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    RecentTimes times;
    std::vector<Nanoseconds> all;
    // Of several orders of magnitude, and often the same.
    const double spread = 1 + random.real() * 7;
    for (auto count = random.between(1, 400); count > 0; --count) {
      const double power = 2 + spread * random.real();
      all.push_back(static_cast<Nanoseconds>(std::pow(10, power)) * random.between(0, 1));
      times.add(all.back(), 7);
    }
    EXPECT_EQ(times.count(7), static_cast<std::int64_t>(all.size()));
    expect_near(times.percentiles(7), all);
  }
}

// What is younger than a minute always counts, what is older than two never does.
TEST(RecentTimes, ForgetsAfterOneToTwoMinutes) {
  Random random(5);
  for (int round = 0; round < 100; ++round) {
    RecentTimes times;
    std::vector<std::pair<Nanoseconds, Nanoseconds>> all;  // when, and how long
    Nanoseconds now = random.between(0, 100 * kSecond);
    for (int i = 0; i < 200; ++i) {
      now +=
          random.chance(0.02) ? random.between(0, 300 * kSecond) : random.between(0, 2 * kSecond);
      if (random.chance(0.7)) {
        all.emplace_back(now, random.between(0, 100) * 1'000'000);
        times.add(all.back().second, now);
      }
      const auto younger = [&](Nanoseconds age) {
        return std::count_if(all.begin(), all.end(),
                             [&](const auto& one) { return now - one.first < age; });
      };
      const std::int64_t count = times.count(now);
      ASSERT_GE(count, younger(60 * kSecond));
      ASSERT_LE(count, younger(120 * kSecond));
      // The newest ones, so many.
      std::vector<Nanoseconds> counted;
      for (std::size_t k = all.size() - static_cast<std::size_t>(count); k < all.size(); ++k) {
        counted.push_back(all[k].second);
      }
      if (counted.empty()) {
        ASSERT_EQ(times.percentiles(now), std::nullopt);
      } else {
        expect_near(times.percentiles(now), counted);
      }
    }
  }
}

// Every wait that ended with a grant, and no other.
TEST(RecentTimes, OfTheGrantsOfADevice) {
  Random random(3);
  DeviceQueue queue(10'000'000);
  constexpr std::size_t kJobs = 4;
  std::vector<Nanoseconds> asked(kJobs, -1);
  std::vector<std::vector<Nanoseconds>> waits(kJobs);
  for (std::size_t i = 0; i < kJobs; ++i)
    queue.add(JobId(i), {.weight = 1.0 + static_cast<double>(i)}, 0);
  Nanoseconds now = 0;
  std::int64_t grants = 0;
  for (int i = 0; i < 20'000 && now < 59 * kSecond; ++i) {
    now += random.between(0, 5'000'000);
    const auto job = static_cast<std::size_t>(random.between(0, kJobs - 1));
    const bool holds = queue.holder() == JobId(job);
    const auto action = random.between(0, 2);
    if (action == 0 && queue.state(JobId(job)) == JobState::kIdle) asked[job] = now;
    if (action == 1 && holds) asked[job] = now;
    if (action == 0) queue.want(JobId(job), now);
    if (action == 1) queue.yield(JobId(job), now);
    if (action == 2) queue.rest(JobId(job), now);
    for (const Order& order : queue.take_orders()) {
      if (order.kind != Order::Kind::kGrant) continue;
      ++grants;
      waits[order.job.index()].push_back(now - asked[order.job.index()]);
    }
  }
  EXPECT_EQ(queue.grants(), grants);
  for (std::size_t i = 0; i < kJobs; ++i) {
    ASSERT_GT(waits[i].size(), 100u);
    EXPECT_EQ(queue.counts(JobId(i), now).grants, static_cast<std::int64_t>(waits[i].size()));
    expect_near(queue.waits(JobId(i), now), waits[i]);
  }
}

}  // namespace
}  // namespace regen::share
