#include "regen/share/scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "regen/base/random.h"
#include "regen/share/protocol/environment.h"
#include "regen/share/report/prometheus.h"

namespace regen::share {
namespace {

using ::testing::HasSubstr;

JobSpec job(const std::string& name, Bytes memory, std::int64_t priority = 0) {
  return {.name = name, .identity = name, .priority = priority, .memory = memory};
}

TEST(Scheduler, AdmitsWhatFitsAndRefusesWithTheNumbers) {
  Scheduler scheduler({{"gpu0", 1000}}, 10);
  const auto first = scheduler.add(job("a", 600), 1, 0);
  ASSERT_TRUE(first.ok());
  const auto second = scheduler.add(job("b", 401), 2, 0);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kInfeasible);
  EXPECT_EQ(second.error().message,
            "job 'b' asks for 401 bytes on device 'gpu0', expected at most 400: 1 job there have "
            "600 of 1,000; the least bytes of 2 jobs sum to 1,001, expected at most 1,000");
  EXPECT_TRUE(scheduler.add(job("c", 400), 3, 0).ok()) << "it fits to the byte";
  scheduler.remove(*first, 5);
  EXPECT_TRUE(scheduler.add(job("d", 600), 4, 5).ok()) << "what a job had returns";
}

std::optional<ByteLimit> last_limit(const std::vector<Order>& orders, JobId job) {
  std::optional<ByteLimit> limit;
  for (const Order& order : orders) {
    if (order.job == job && order.kind == Order::Kind::kLimit) limit = order.limit;
  }
  return limit;
}

TEST(Scheduler, RunningJobsMakeRoomForANewcomer) {
  Scheduler scheduler({{"gpu0", 1000}}, 10);
  JobSpec flexible = job("a", 900);
  flexible.points = {{900, 100}, {500, 120}};
  const JobId a = *scheduler.add(flexible, 1, 0);
  EXPECT_EQ(last_limit(scheduler.take_orders(), a)->bytes, 900);
  EXPECT_TRUE(scheduler.check(job("b", 500)).ok());
  const JobId b = *scheduler.add(job("b", 500), 2, 1);
  const auto limit = last_limit(scheduler.take_orders(), a);
  EXPECT_EQ(limit->bytes, 500);
  EXPECT_FALSE(scheduler.admitted(b));
  EXPECT_EQ(scheduler.status(2)[0].newcomers.size(), 1u);
  scheduler.confirm(a, limit->generation, 450, 3);
  EXPECT_TRUE(scheduler.admitted(b));
  scheduler.remove(b, 4);
  EXPECT_EQ(last_limit(scheduler.take_orders(), a)->bytes, 900) << "it grows back";
}

TEST(Scheduler, ANewcomerDoesNotWaitForEver) {
  Scheduler scheduler({{"gpu0", 1000}}, 10, {.newcomer = 100});
  JobSpec flexible = job("a", 900);
  flexible.points = {{900, 100}, {500, 120}};
  const JobId a = *scheduler.add(flexible, 1, 0);
  const JobId b = *scheduler.add(job("b", 500), 2, 5);
  EXPECT_EQ(scheduler.next_event(), 105);
  scheduler.take_orders();
  scheduler.advance(104);
  EXPECT_TRUE(scheduler.take_orders().empty());
  scheduler.advance(105);
  EXPECT_EQ(scheduler.take_orders(), (std::vector<Order>{{b, Order::Kind::kExpire}}));
  EXPECT_EQ(scheduler.expiry(b, 105).message,
            "job 'b' waited 1e-07 s for memory on device 'gpu0', expected others to "
            "give theirs back: 'a' has 900 bytes of 500");
  scheduler.remove(b, 106);
  EXPECT_EQ(last_limit(scheduler.take_orders(), a)->bytes, 900) << "the order is taken back";
  EXPECT_EQ(scheduler.next_event(), std::nullopt);
}

// Low shrinks for the newcomer, but would never run beside the middle one.
TEST(Scheduler, WhoseBytesAreAwaitedRunsFirst) {
  Scheduler scheduler({{"gpu0", 1000}}, 10);
  JobSpec flexible = job("low", 900);
  flexible.points = {{900, 100}, {500, 120}};
  const JobId low = *scheduler.add(flexible, 1, 0);
  const JobId middle = *scheduler.add(job("middle", 100, 1), 2, 0);
  scheduler.want(low, 1);
  scheduler.want(middle, 2);
  EXPECT_TRUE(scheduler.yield(low, 3).ok());
  scheduler.take_orders();
  ASSERT_TRUE(scheduler.add(job("urgent", 400, 2), 3, 4).ok());
  const auto orders = scheduler.take_orders();
  EXPECT_EQ(orders.back(), (Order{middle, Order::Kind::kGiveWay}));
  EXPECT_TRUE(scheduler.yield(middle, 5).ok());
  EXPECT_EQ(scheduler.take_orders(), (std::vector<Order>{{low, Order::Kind::kGrant}}));
  scheduler.confirm(low, last_limit(orders, low)->generation, 500, 6);
  const auto after = scheduler.take_orders();
  EXPECT_THAT(after, ::testing::Contains(Order{low, Order::Kind::kGiveWay})) << "as before";
}

TEST(Scheduler, TurnsWithMemoryAreLongerWhereMovingIsDear) {
  Scheduler scheduler({{"gpu0", 1000}}, 10);
  JobSpec spec = job("a", 800);
  spec.persistent_bytes = 100;
  spec.deepest = Depth::kSpill;
  const JobId a = *scheduler.add(spec, 1, 0);
  spec.name = spec.identity = "b";
  const JobId b = *scheduler.add(spec, 2, 0);
  scheduler.want(a, 0);
  scheduler.want(b, 1);
  scheduler.advance(11);
  EXPECT_TRUE(scheduler.yield(a, 12).ok());
  scheduler.take_orders();
  EXPECT_EQ(scheduler.status(12)[0].jobs[0].state, JobState::kWaiting);
  ASSERT_TRUE(scheduler.made_room(a, 100, 12 + 7).ok());
  EXPECT_EQ(scheduler.take_orders(), (std::vector<Order>{{b, Order::Kind::kGrant}}));
  EXPECT_EQ(scheduler.next_event(), 19 + 70) << "ten times what the move took";
  EXPECT_THAT(scheduler.made_room(a, 100, 20).error().message, HasSubstr("without being asked"));
}

TEST(Scheduler, OperatorsChangeJobsThatRun) {
  Scheduler scheduler({{"gpu0", 1000}}, 10);
  JobSpec flexible = job("a", 900);
  flexible.points = {{900, 100}, {500, 120}};
  const JobId a = *scheduler.add(flexible, 1, 0);
  scheduler.take_orders();
  EXPECT_EQ(scheduler.change("x", {}, 1).error().message, "unknown job 'x', expected one of a");
  EXPECT_EQ(scheduler.change("a", {.memory = 499}, 1).error().message,
            "job 'a' may use 499 bytes, expected at least the 500 that it says it needs");
  ASSERT_TRUE(scheduler.change("a", {.priority = 5, .weight = 2.5, .memory = 600}, 1).ok());
  EXPECT_EQ(last_limit(scheduler.take_orders(), a)->bytes, 500);
  const JobStatus status = scheduler.status(2)[0].jobs[0];
  EXPECT_EQ(status.priority, 5);
  EXPECT_EQ(status.weight, 2.5);
}

TEST(Scheduler, KnowsItsDevicesAndIdentities) {
  Scheduler scheduler({{"gpu0", 1000}, {"gpu1", 1000}}, 10);
  JobSpec elsewhere = job("a", 1);
  elsewhere.device = "gpu7";
  EXPECT_EQ(scheduler.check(elsewhere).error().message,
            "unknown device 'gpu7', expected one of gpu0, gpu1");
  ASSERT_TRUE(scheduler.add(job("a", 1), 77, 0).ok());
  EXPECT_THAT(scheduler.check(job("a", 1)).error().message,
              HasSubstr("identity 'a' is registered already, by process 77"));
}

TEST(Scheduler, DevicesAreIndependent) {
  Scheduler scheduler({{"gpu0", 1000}, {"gpu1", 1000}}, 10);
  JobSpec second = job("b", 1);
  second.device = "gpu1";
  const JobId a = *scheduler.add(job("a", 1), 1, 0);
  const JobId b = *scheduler.add(second, 2, 0);
  scheduler.take_orders();
  scheduler.want(a, 1);
  scheduler.want(b, 1);
  EXPECT_EQ(scheduler.take_orders(),
            (std::vector<Order>{{a, Order::Kind::kGrant}, {b, Order::Kind::kGrant}}));
  EXPECT_FALSE(scheduler.next_event().has_value());
}

TEST(Scheduler, RefusesAYieldOfWhoDoesNotHold) {
  Scheduler scheduler({{"gpu0", 1000}}, 10);
  const JobId a = *scheduler.add(job("a", 1), 1, 0);
  EXPECT_THAT(scheduler.yield(a, 1).error().message, HasSubstr("does not hold"));
}

TEST(Scheduler, StatusSumsUp) {
  Scheduler scheduler({{"gpu0", 1000}}, 10);
  const JobId a = *scheduler.add(job("a \"x\"", 100, 2), 1, 0);
  scheduler.want(a, 0);
  scheduler.rest(a, {}, 500);
  const auto devices = scheduler.status(1000);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].used_bytes, 100);
  EXPECT_EQ(devices[0].busy, 500);
  EXPECT_DOUBLE_EQ(devices[0].jobs[0].share(), 0.5);
  const std::string text = prometheus_text(to_json(DaemonStatus{.devices = devices}));
  EXPECT_THAT(text, HasSubstr("regen_share_device_used_bytes{device=\"gpu0\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("regen_share_job_grants_total{device=\"gpu0\",job=\"a \\\"x\\\"\","
                              "identity=\"a \\\"x\\\"\"} 1\n"));
}

// Jobs that come, go, answer and are silent, under a clock that jumps to and fro.
TEST(Scheduler, KeepsItsPromisesUnderClocksThatJump) {
  Random random(17);
  Scheduler scheduler({{"gpu0", 1000}}, 10, {.holder = 50, .newcomer = 500});
  struct Actor {
    std::optional<JobId> id;
    std::uint32_t generation = 0;
    Bytes limit = 0;
    Bytes plan = 0;
    Bytes uses = 0;
    bool asked = false;
  };
  std::vector<Actor> actors(5);
  const auto of = [&](JobId id) {
    return std::find_if(actors.begin(), actors.end(), [id](const Actor& a) { return a.id == id; });
  };
  Nanoseconds now = 1'000'000;
  int grants = 0, admissions = 0, expiries = 0;
  for (int round = 0; round < 100'000; ++round) {
    now += random.between(0, 20);
    if (round % 1000 == 0) now += random.between(-500'000, 1'000'000);
    Actor& actor = actors[random.next() % actors.size()];
    if (!actor.id) {
      JobSpec spec =
          job("j" + std::to_string(round), random.between(200, 900), random.between(0, 2));
      spec.persistent_bytes = random.between(0, 60);
      spec.deepest = static_cast<Depth>(random.between(0, 2));
      if (random.between(0, 1) == 0) spec.least_bytes = 150;
      const auto added = scheduler.add(spec, 1, now);
      if (added.ok()) actor.id = *added;
    } else if (!scheduler.admitted(*actor.id)) {
      scheduler.advance(now);
    } else {
      const JobId id = *actor.id;
      switch (random.between(0, 6)) {
        case 0:
          if (random.between(0, 9) == 0) {
            scheduler.remove(id, now);
            actor = {};
          }
          break;
        case 1:
          scheduler.want(id, now);
          break;
        case 2:
          (void)scheduler.yield(id, now).ok();
          break;
        case 3:
          scheduler.rest(id, {}, now);
          break;
        case 4:
          // Between two steps, where it has the device; else it only keeps to the limit.
          actor.plan = actor.limit;
          actor.uses = std::min(actor.uses, actor.plan);
          scheduler.confirm(id, actor.generation, actor.uses, now);
          break;
        default:
          if (std::exchange(actor.asked, false)) {
            actor.uses = 0;
            ASSERT_TRUE(scheduler.made_room(id, 0, now).ok());
          }
      }
    }
    for (const Order& order : scheduler.take_orders()) {
      const auto target = of(order.job);
      ASSERT_NE(target, actors.end()) << "an order for nobody";
      grants += order.kind == Order::Kind::kGrant ? 1 : 0;
      admissions += order.kind == Order::Kind::kAdmit ? 1 : 0;
      target->asked |= order.kind == Order::Kind::kMakeRoom;
      if (order.kind == Order::Kind::kAdmit) {
        const JobSpec& spec = scheduler.spec(order.job);
        target->plan = target->limit;
        target->uses = spec.deepest == Depth::kPause ? target->limit : spec.persistent_bytes;
      }
      if (order.kind == Order::Kind::kGrant) target->uses = target->plan;
      ASSERT_FALSE(order.kind == Order::Kind::kGrant && target->asked);
      if (order.kind == Order::Kind::kLimit) {
        target->generation = order.limit.generation;
        target->limit = order.limit.bytes;
      }
      if (order.kind == Order::Kind::kExpire) {
        ++expiries;
        scheduler.remove(*target->id, now);
        *target = {};
      }
    }
    const DeviceStatus device = scheduler.status(now)[0];
    ASSERT_LE(device.used_bytes, 1000);
    Bytes really = 0;
    for (const Actor& each : actors) really += each.uses;
    ASSERT_LE(really, device.used_bytes);
    ASSERT_GE(device.asked_for, 0);
    int holders = 0;
    Nanoseconds used = 0;
    for (const JobStatus& status : device.jobs) {
      holders += status.state == JobState::kHolding ? 1 : 0;
      used += status.counts.used;
      ASSERT_GE(status.counts.waited, 0);
    }
    ASSERT_LE(holders, 1);
    ASSERT_LE(used, device.busy);
  }
  EXPECT_GT(grants, 1000);
  EXPECT_GT(admissions, 100);
  EXPECT_GT(expiries, 5);
}

TEST(ParseDevice, ReadsNameAndBytes) {
  EXPECT_EQ(*parse_device("gpu0:8GiB"), (DeviceSpec{"gpu0", Bytes{8} << 30}));
  EXPECT_EQ(*parse_device("pci:01:00:16e9"), (DeviceSpec{"pci:01:00", 16'000'000'000}));
  for (const char* bad : {"", "gpu0", ":8GiB", "gpu0:", "gpu0:many"}) {
    EXPECT_THAT(parse_device(bad).error().message, HasSubstr("bad device"));
  }
}

TEST(Environment, CarriesAnEnrolment) {
  const Enrolment enrolment{"/run/x.sock",
                            {.name = "train",
                             .device = "gpu1",
                             .priority = 2,
                             .weight = 1.5,
                             .memory = 8 << 20,
                             .deadline = 5'000'000}};
  for (const auto& [name, value] : to_environment(enrolment)) {
    ::setenv(name.c_str(), value.value_or("").c_str(), 1);
  }
  const auto read = enrolment_from_environment();
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, enrolment);
  ::setenv("REGEN_SHARE_WEIGHT", "heavy", 1);
  EXPECT_THAT(enrolment_from_environment().error().message,
              HasSubstr("REGEN_SHARE_WEIGHT: bad weight 'heavy'"));
  ::unsetenv("REGEN_SHARE_NAME");
  EXPECT_FALSE(enrolment_from_environment()->has_value()) << "not started by regen share run";
  EXPECT_THAT(required_enrolment().error().message,
              HasSubstr("this program was not started by regen, expected `regen share run"));
}

}  // namespace
}  // namespace regen::share
