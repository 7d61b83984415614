#include "regen/share/scheduler/arrangement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "regen/base/random.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;
using Places = std::vector<Place>;

TEST(Arrange, GivesEverybodyTheMostWhereItFits) {
  const Demand a{.choices = {{300, 5}, {100, 9}}};
  EXPECT_EQ(*arrange({a, a, a}, 900), (Places{{300}, {300}, {300}}));
  EXPECT_EQ(*arrange({}, 0), Places{});
}

TEST(Arrange, ShrinksWhereItCostsLeast) {
  const Demand cheap{.choices = {{300, 5}, {100, 6}}};
  const Demand expensive{.choices = {{300, 5}, {100, 50}}};
  EXPECT_EQ(*arrange({cheap, expensive}, 400), (Places{{100}, {300}}));
  Demand urgent = cheap;
  urgent.priority = 1;
  EXPECT_EQ(*arrange({urgent, expensive}, 400), (Places{{300}, {100}})) << "priorities go first";
}

// Sizes near 80 GiB are counted in parts; the least bytes must still fit to the byte.
TEST(Arrange, NeverRefusesLeastBytesThatFit) {
  const Bytes odd = (Bytes{80} << 30) - 12'345'677;
  const Demand a{.choices = {{odd / 3, 5}, {odd / 2, 1}}};
  const Demand b{.choices = {{odd - 2 * (odd / 3), 5}}};
  EXPECT_TRUE(arrange({a, a, b}, odd).ok());
  EXPECT_FALSE(arrange({a, a, b}, odd - 1).ok());
}

TEST(Arrange, TakesTurnsWhereLeastBytesDoNotFit) {
  const Demand a{.choices = {{900, 1}, {700, 4}}, .persistent = 100, .can_spill = true};
  EXPECT_EQ(*arrange({a, a}, 1000), (Places{{900}, {900}})) << "100 + 100 + 800";
  EXPECT_EQ(*arrange({a, a, a}, 1000), (Places{{700}, {700}, {700}})) << "300 + 600, or 800";
  const auto none = arrange({a, a, a, a, a}, 1000);
  EXPECT_EQ(
      none.error().message,
      "the least bytes of 5 jobs sum to 3,500, expected at most 1,000, and in turns they need "
      "1,100");
  Demand stays = a;
  stays.can_spill = false;
  EXPECT_EQ(none.error().code, ErrorCode::kInfeasible);
  EXPECT_THAT(arrange({stays, stays}, 1000).error().message, HasSubstr("sum to 1,400"));
}

TEST(Arrange, SendsTheLowestAway) {
  const Demand high{.priority = 2, .choices = {{800, 1}}};
  const Demand middle{.priority = 1, .choices = {{300, 1}}, .may_be_away = true};
  const Demand low{.choices = {{200, 1}}, .may_be_away = true};
  EXPECT_EQ(*arrange({high, middle, low}, 1000), (Places{{800}, {0, true}, {200}}))
      << "the low one fits once the middle one is gone";
  EXPECT_EQ(*arrange({high, middle, low}, 1100), (Places{{800}, {300}, {0, true}}));
  EXPECT_EQ(*arrange({high, middle, low}, 1300), (Places{{800}, {300}, {200}}));
  EXPECT_FALSE(arrange({high, middle, low}, 799).ok());
}

// Every choice of points, judged by the definition of the header.
struct Oracle {
  const std::vector<Demand>& jobs;
  Bytes capacity;
  using Times = std::map<std::int64_t, Nanoseconds, std::greater<>>;
  std::optional<Times> best_aside, best_in_turns;

  void choose(std::size_t at, Bytes sum, Bytes parked, Bytes room, const Times& times) {
    if (at == jobs.size()) {
      if (sum <= capacity && (!best_aside || times < *best_aside)) best_aside = times;
      if (parked + room <= capacity && (!best_in_turns || times < *best_in_turns)) {
        best_in_turns = times;
      }
      return;
    }
    for (const MemoryPoint& point : jobs[at].choices) {
      const Bytes stays = jobs[at].can_spill ? jobs[at].persistent : point.bytes;
      Times with = times;
      with[jobs[at].priority] += point.time;
      choose(at + 1, sum + point.bytes, parked + stays, std::max(room, point.bytes - stays), with);
    }
  }
  std::optional<Times> best() {
    choose(0, 0, 0, 0, {});
    return best_aside ? best_aside : best_in_turns;
  }
};

TEST(Arrange, IsTheBestOfAllChoices) {
  Random random(3);
  int feasible = 0, in_turns = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Demand> jobs(static_cast<std::size_t>(random.between(1, 4)));
    for (Demand& job : jobs) {
      job.priority = random.between(0, 1);
      job.persistent = random.between(0, 20);
      job.can_spill = random.between(0, 2) > 0;
      for (auto count = random.between(1, 3); count > 0; --count) {
        job.choices.push_back({job.persistent + random.between(0, 60), random.between(0, 9)});
      }
    }
    const Bytes capacity = random.between(20, 160);
    Oracle oracle{jobs, capacity, {}, {}};
    const auto expected = oracle.best();
    const auto places = arrange(jobs, capacity);
    ASSERT_EQ(places.ok(), expected.has_value()) << "round " << round;
    if (!expected) continue;
    ++feasible;
    in_turns += oracle.best_aside ? 0 : 1;
    Oracle::Times times;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      Nanoseconds least = kNever;
      for (const MemoryPoint& point : jobs[i].choices) {
        if (point.bytes == (*places)[i].limit) least = std::min(least, point.time);
      }
      times[jobs[i].priority] += least;
    }
    ASSERT_EQ(times, *expected) << "round " << round;
  }
  EXPECT_GT(feasible, 1000);
  EXPECT_GT(in_turns, 200);
}

}  // namespace
}  // namespace regen::share
