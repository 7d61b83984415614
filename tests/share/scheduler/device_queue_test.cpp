#include "regen/share/scheduler/device_queue.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "regen/base/random.h"

namespace regen::share {
namespace {

using Kind = Order::Kind;
using Claim = DeviceQueue::Claim;

constexpr Nanoseconds kTurn = 10;
const JobId kA(0), kB(1), kC(2);

// Small helper: a queue with jobs 0, 1, 2, ... of these claims, at time 0.
DeviceQueue queue_of(const std::vector<Claim>& claims) {
  DeviceQueue queue(kTurn);
  for (std::size_t i = 0; i < claims.size(); ++i) queue.add(JobId(i), claims[i], 0);
  return queue;
}

using Orders = std::vector<Order>;

TEST(DeviceQueue, AJobAloneIsNeverInterrupted) {
  DeviceQueue queue = queue_of({{}});
  queue.want(kA, 5);
  EXPECT_EQ(queue.take_orders(), (Orders{{kA, Kind::kGrant}}));
  EXPECT_EQ(queue.next_event(), std::nullopt) << "nobody waits, so no timer runs";
  queue.advance(1'000'000);
  EXPECT_EQ(queue.take_orders(), Orders{});
  EXPECT_EQ(queue.counts(kA, 1'000'005).used, 1'000'000);
}

TEST(DeviceQueue, KnowsWhoCannotBeInterrupted) {
  DeviceQueue queue = queue_of({{.priority = 1}, {.priority = 1}, {.priority = 2}});
  EXPECT_FALSE(queue.outranks_all(kA)) << "whether or not the other wants the device now";
  EXPECT_TRUE(queue.outranks_all(kC));
  queue.remove(kC, 1);
  EXPECT_TRUE(queue.outranks_all(kA)) << "equals wait for the end of a turn";
  queue.add(kC, {.priority = 0, .deadline = 5}, 2);
  EXPECT_TRUE(queue.outranks_all(kA));
  queue.set_claim(kC, 1, 1, 3);
  EXPECT_FALSE(queue.outranks_all(kA)) << "deadlines go first among equals";
  EXPECT_TRUE(queue.outranks_all(kC));
}

TEST(DeviceQueue, AHigherPriorityAsksAtOnce) {
  DeviceQueue queue = queue_of({{.priority = 1}, {.priority = 7}});
  queue.want(kA, 0);
  queue.want(kB, 1);
  EXPECT_EQ(queue.take_orders(), (Orders{{kA, Kind::kGrant}, {kA, Kind::kGiveWay}}));
  queue.yield(kA, 3);
  EXPECT_EQ(queue.take_orders(), (Orders{{kB, Kind::kGrant}}));
  queue.rest(kB, 8);
  EXPECT_EQ(queue.take_orders(), (Orders{{kA, Kind::kGrant}})) << "idle holders give way at once";
  EXPECT_EQ(queue.counts(kA, 8).preemptions, 1);
  EXPECT_EQ(queue.counts(kA, 8).waited, 5);
  EXPECT_EQ(queue.counts(kB, 8).longest_wait, 2);
}

TEST(DeviceQueue, ALowerPriorityWaitsHoweverLong) {
  DeviceQueue queue = queue_of({{.priority = 2}, {.priority = 1}});
  queue.want(kA, 0);
  queue.want(kB, 1);
  queue.take_orders();
  for (Nanoseconds now = 2; now < 1000; now += 7) queue.advance(now);
  EXPECT_EQ(queue.take_orders(), Orders{});
  queue.yield(kA, 1000);
  EXPECT_EQ(queue.holder(), kA) << "it wants to go on, and nobody outranks it";
}

TEST(DeviceQueue, EqualsTakeTurns) {
  DeviceQueue queue = queue_of({{}, {}});
  queue.want(kA, 0);
  queue.want(kB, 0);
  EXPECT_EQ(queue.next_event(), kTurn);
  queue.advance(kTurn - 1);
  EXPECT_FALSE(queue.asked_to_give_way());
  queue.advance(kTurn);
  EXPECT_TRUE(queue.asked_to_give_way());
  EXPECT_EQ(queue.next_event(), std::nullopt) << "all that can be done is to wait for it";
  queue.advance(5 * kTurn);
  EXPECT_TRUE(queue.asked_to_give_way()) << "a slow holder is not let off";
  queue.yield(kA, 5 * kTurn + 1);
  EXPECT_EQ(queue.holder(), kB);
}

TEST(DeviceQueue, ARequestIsTakenBackWhenItsReasonLeaves) {
  DeviceQueue queue = queue_of({{.priority = 0}, {.priority = 1}});
  queue.want(kA, 0);
  queue.want(kB, 1);
  queue.remove(kB, 2);
  EXPECT_EQ(queue.take_orders(),
            (Orders{{kA, Kind::kGrant}, {kA, Kind::kGiveWay}, {kA, Kind::kGoOn}}));
  EXPECT_EQ(queue.counts(kA, 2).preemptions, 0);
}

TEST(DeviceQueue, TheGrantOfADeadHolderReturns) {
  DeviceQueue queue = queue_of({{}, {}});
  queue.want(kA, 0);
  queue.want(kB, 1);
  queue.remove(kA, 4);
  EXPECT_EQ(queue.take_orders(), (Orders{{kB, Kind::kGrant}}));
  EXPECT_EQ(queue.busy(6), 6) << "4 of the dead job, 2 of the next";
}

TEST(DeviceQueue, TheEarliestDeadlineComesFirstInsideALevel) {
  DeviceQueue queue = queue_of({{}, {.deadline = 100}, {.deadline = 20}});
  queue.want(kA, 0);
  queue.want(kB, 1);  // due at 101
  queue.want(kC, 2);  // due at 22
  EXPECT_TRUE(queue.asked_to_give_way());
  queue.yield(kA, 30);
  EXPECT_EQ(queue.holder(), kC);
  EXPECT_EQ(queue.counts(kC, 30).missed_deadlines, 1) << "granted at 30, due at 22";
  queue.rest(kC, 31);
  EXPECT_EQ(queue.holder(), kB);
  EXPECT_EQ(queue.counts(kB, 31).missed_deadlines, 0);
  queue.want(kC, 32);  // due at 52, before 101
  EXPECT_TRUE(queue.asked_to_give_way());
  queue.yield(kB, 33);
  EXPECT_EQ(queue.holder(), kC);
}

TEST(DeviceQueue, APriorityBeatsADeadline) {
  DeviceQueue queue = queue_of({{.priority = 1}, {.priority = 0, .deadline = 1}});
  queue.want(kA, 0);
  queue.want(kB, 0);
  EXPECT_FALSE(queue.asked_to_give_way());
}

// Jobs that always want the device and give way when asked; time goes on in steps of 1.
std::vector<Nanoseconds> used_after(DeviceQueue& queue, std::size_t jobs, Nanoseconds until) {
  for (std::size_t i = 0; i < jobs; ++i) queue.want(JobId(i), 0);
  for (Nanoseconds now = 1; now <= until; ++now) {
    queue.advance(now);
    if (queue.asked_to_give_way()) queue.yield(*queue.holder(), now);
  }
  std::vector<Nanoseconds> used;
  for (std::size_t i = 0; i < jobs; ++i) used.push_back(queue.counts(JobId(i), until).used);
  return used;
}

TEST(DeviceQueue, WeightsAreObeyed) {
  DeviceQueue queue = queue_of({{.weight = 1}, {.weight = 2}, {.weight = 5}});
  const auto used = used_after(queue, 3, 80'000);
  EXPECT_NEAR(static_cast<double>(used[0]), 10'000, 2 * kTurn);
  EXPECT_NEAR(static_cast<double>(used[1]), 20'000, 2 * kTurn);
  EXPECT_NEAR(static_cast<double>(used[2]), 50'000, 2 * kTurn);
}

TEST(DeviceQueue, IdleTimeBringsNoCredit) {
  DeviceQueue queue = queue_of({{}, {}});
  queue.want(kA, 0);
  queue.advance(100'000);
  queue.want(kB, 100'000);  // has used nothing so far
  for (Nanoseconds now = 100'001; now <= 102'000; ++now) {
    queue.advance(now);
    if (queue.asked_to_give_way()) queue.yield(*queue.holder(), now);
  }
  EXPECT_NEAR(static_cast<double>(queue.counts(kB, 102'000).used), 1000, 2 * kTurn);
}

TEST(DeviceQueue, AClosedDeviceGrantsNothing) {
  DeviceQueue queue = queue_of({{}});
  queue.set_closed(true, 0);
  queue.want(kA, 1);
  EXPECT_EQ(queue.take_orders(), Orders{});
  queue.set_closed(false, 9);
  EXPECT_EQ(queue.take_orders(), (Orders{{kA, Kind::kGrant}}));
}

TEST(DeviceQueue, WhoseMemoryIsNotThereIsNotGranted) {
  DeviceQueue queue = queue_of({{.priority = 1}, {}});
  queue.set_access(kA, Access::kParked, 0);
  queue.want(kB, 0);
  queue.want(kA, 1);
  EXPECT_TRUE(queue.asked_to_give_way()) << "it is the next all the same";
  queue.yield(kB, 2);
  EXPECT_EQ(queue.holder(), std::nullopt);
  EXPECT_EQ(queue.blocked(), kA);
  queue.set_access(kA, Access::kReady, 3);
  EXPECT_EQ(queue.holder(), kA);
  queue.set_access(kA, Access::kBarred, 4);
  EXPECT_TRUE(queue.asked_to_give_way());
  queue.yield(kA, 5);
  EXPECT_EQ(queue.holder(), kB) << "others go on meanwhile";
}

TEST(DeviceQueue, PatienceWithAHolderEndsAgainAndAgain) {
  DeviceQueue queue(kTurn, 100);
  queue.add(kA, {}, 0);
  queue.add(kB, {.priority = 1}, 0);
  queue.want(kA, 0);
  queue.want(kB, 5);
  EXPECT_EQ(queue.next_event(), 105);
  queue.take_orders();
  queue.advance(104);
  EXPECT_EQ(queue.take_orders(), Orders{});
  queue.advance(105);
  EXPECT_EQ(queue.take_orders(), (Orders{{kA, Kind::kHung}}));
  EXPECT_EQ(queue.next_event(), 205);
  queue.advance(205);
  EXPECT_EQ(queue.take_orders(), (Orders{{kA, Kind::kHung}}));
  queue.yield(kA, 206);
  queue.advance(1'000);
  EXPECT_EQ(queue.take_orders(), (Orders{{kB, Kind::kGrant}}));
}

TEST(DeviceQueue, ClaimsMayChange) {
  DeviceQueue queue = queue_of({{}, {}});
  queue.want(kA, 0);
  queue.want(kB, 0);
  queue.set_claim(kB, 3, 1, 4);
  EXPECT_TRUE(queue.asked_to_give_way());
  queue.set_claim(kA, 3, 2, 5);
  EXPECT_FALSE(queue.asked_to_give_way()) << "its turn is not over";
  EXPECT_EQ(queue.counts(kA, 6).used, 6);
  EXPECT_EQ(queue.busy(6), 6);
}

TEST(DeviceQueue, ClocksMayJump) {
  DeviceQueue queue = queue_of({{}, {}});
  queue.want(kA, 1'000);
  queue.want(kB, -5'000'000);  // back: counts as no time at all
  EXPECT_EQ(queue.counts(kA, -1).used, 0);
  queue.advance(0);
  EXPECT_FALSE(queue.asked_to_give_way());
  const Nanoseconds century = 3'000'000'000'000'000'000;
  queue.advance(century);
  EXPECT_TRUE(queue.asked_to_give_way());
  queue.yield(kA, century);
  EXPECT_EQ(queue.holder(), kB);
  EXPECT_EQ(queue.counts(kA, century).used, century - 1'000);
  queue.rest(kB, 7);
  EXPECT_EQ(queue.counts(kB, century).used, 0);
  EXPECT_EQ(queue.holder(), kA);
}

// Everything that can be done to three jobs, in every order, as deep as there is time: the
// invariants of the header hold after every call.
class Exhaustive {
 public:
  explicit Exhaustive(std::vector<Claim> claims) : claims_(std::move(claims)) {}

  void explore(const DeviceQueue& queue, int depth, Nanoseconds now) {
    check(queue, now);
    if (depth == 0) return;
    for (std::size_t job = 0; job < claims_.size(); ++job) {
      for (int action = 0; action < 3; ++action) {
        DeviceQueue next = queue;
        if (action == 0) next.want(JobId(job), now);
        if (action == 1) next.yield(JobId(job), now);
        if (action == 2) next.rest(JobId(job), now);
        explore(next, depth - 1, now + 4);
      }
    }
    DeviceQueue next = queue;
    next.advance(now + kTurn);
    explore(next, depth - 1, now + kTurn);
  }
  int states() const { return states_; }

 private:
  void check(const DeviceQueue& queue, Nanoseconds now) {
    ++states_;
    std::size_t holding = 0;
    Nanoseconds used = 0;
    bool outranked = false;
    for (std::size_t job = 0; job < claims_.size(); ++job) {
      const JobState state = queue.state(JobId(job));
      holding += state == JobState::kHolding ? 1 : 0;
      used += queue.counts(JobId(job), now).used;
      outranked |= queue.holder() && state == JobState::kWaiting &&
                   claims_[job].priority > claims_[queue.holder()->index()].priority;
    }
    ASSERT_LE(holding, 1u);
    ASSERT_EQ(holding == 1, queue.holder().has_value());
    ASSERT_TRUE(holding == 1 || queue.waiting() == 0) << "a free device has no waiting job";
    ASSERT_EQ(used, queue.busy(now));
    ASSERT_TRUE(!outranked || queue.asked_to_give_way());
    ASSERT_TRUE(!queue.asked_to_give_way() || queue.waiting() > 0);
  }

  std::vector<Claim> claims_;
  int states_ = 0;
};

TEST(DeviceQueue, KeepsItsInvariantsInEveryOrderOfCalls) {
  const std::vector<std::vector<Claim>> cases{
      {{}, {}, {}}, {{.priority = 2}, {.priority = 1}, {}}, {{.weight = 3}, {.deadline = 5}, {}}};
  for (const auto& claims : cases) {
    Exhaustive exhaustive(claims);
    exhaustive.explore(queue_of(claims), 5, 0);
    EXPECT_EQ(exhaustive.states(), 111'111) << "ten things to do, five deep";
  }
}

}  // namespace
}  // namespace regen::share
