#include "regen/share/scheduler/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace regen::share {
namespace {

using Kind = Order::Kind;
using ::testing::HasSubstr;

const JobId kA(0), kB(1), kC(2);

// A job of these points, the first of which is what it asks for.
JobSpec flexible(std::vector<MemoryPoint> points, std::int64_t priority = 0) {
  const Bytes memory = points[0].bytes;
  return {.priority = priority, .memory = memory, .points = std::move(points)};
}

JobSpec spilling(std::vector<MemoryPoint> points, Bytes persistent, Depth deepest = Depth::kSpill,
                 std::int64_t priority = 0) {
  JobSpec spec = flexible(std::move(points), priority);
  spec.persistent_bytes = persistent;
  spec.deepest = deepest;
  return spec;
}
JobSpec spilling(Bytes memory, Bytes persistent, Depth deepest = Depth::kSpill,
                 std::int64_t priority = 0) {
  return spilling({{memory, 0}}, persistent, deepest, priority);
}

Status request(DeviceMemory& memory, JobId job, const JobSpec& spec) {
  Status done = memory.request(job, demand_of(spec), spec.deepest);
  memory.settle();
  return done;
}

// The last limit that each job was sent, as bytes; everything else as kinds.
std::vector<std::pair<JobId, Kind>> kinds(const std::vector<Order>& orders) {
  std::vector<std::pair<JobId, Kind>> result;
  result.reserve(orders.size());
  for (const Order& order : orders) result.push_back({order.job, order.kind});
  return result;
}
using Kinds = std::vector<std::pair<JobId, Kind>>;

std::uint32_t generation_of(const std::vector<Order>& orders, JobId job) {
  std::uint32_t generation = 0;
  for (const Order& order : orders) {
    if (order.job == job && order.kind == Kind::kLimit) generation = order.limit.generation;
  }
  return generation;
}

TEST(DeviceMemory, ANewcomerWaitsForBytesThatAreReallyBack) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, flexible({{900, 10}, {500, 12}})).ok());
  EXPECT_EQ(kinds(memory.take_orders()), (Kinds{{kA, Kind::kLimit}, {kA, Kind::kAdmit}}));
  ASSERT_TRUE(request(memory, kB, flexible({{500, 10}})).ok());
  const auto orders = memory.take_orders();
  EXPECT_EQ(kinds(orders), (Kinds{{kA, Kind::kLimit}}));
  EXPECT_EQ(orders[0].limit.bytes, 500);
  EXPECT_FALSE(memory.admitted(kB));
  memory.confirm(kA, orders[0].limit.generation, 700);
  memory.settle();
  EXPECT_FALSE(memory.admitted(kB)) << "700 is more than 500";
  memory.confirm(kA, orders[0].limit.generation, 480);
  memory.settle();
  EXPECT_EQ(kinds(memory.take_orders()), (Kinds{{kB, Kind::kLimit}, {kB, Kind::kAdmit}}));
  EXPECT_EQ(memory.held(), 1000) << "a limit may be used, whatever is used now";
  memory.remove(kB);
  memory.settle();
  const auto grown = memory.take_orders();
  EXPECT_EQ(kinds(grown), (Kinds{{kA, Kind::kLimit}}));
  EXPECT_EQ(grown[0].limit.bytes, 900);
}

TEST(DeviceMemory, AnAbortTakesTheOrdersBack) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, flexible({{900, 10}, {500, 12}})).ok());
  ASSERT_TRUE(request(memory, kB, flexible({{500, 10}})).ok());
  const std::uint32_t asked = generation_of(memory.take_orders(), kA);
  memory.remove(kB);
  memory.settle();
  const auto back = memory.take_orders();
  ASSERT_EQ(kinds(back), (Kinds{{kA, Kind::kLimit}}));
  EXPECT_EQ(back[0].limit.bytes, 900);
  // The confirmation of the order that was taken back arrives late, and after it a new newcomer.
  ASSERT_TRUE(request(memory, kC, flexible({{500, 10}})).ok());
  memory.confirm(kA, asked, 500);
  memory.settle();
  EXPECT_FALSE(memory.admitted(kC)) << "it may be growing again since";
}

TEST(DeviceMemory, RefusesWhatNobodyCouldMakeRoomFor) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, flexible({{900, 10}, {500, 12}})).ok());
  memory.take_orders();
  const Status refused = request(memory, kB, flexible({{501, 10}}));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "the least bytes of 2 jobs sum to 1,001, expected at most 1,000");
  EXPECT_TRUE(memory.take_orders().empty()) << "nobody shrinks for nothing";
}

TEST(DeviceMemory, JobsThatSpillTakeTurns) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, spilling(800, 100)).ok());
  ASSERT_TRUE(memory.make_ready(kA));
  memory.set_holder(kA);
  ASSERT_TRUE(request(memory, kB, spilling(700, 150)).ok());
  EXPECT_TRUE(memory.admitted(kB));
  EXPECT_EQ(memory.held(), 950) << "all of A, and what B keeps";
  EXPECT_EQ(memory.access(kB), Access::kParked);
  memory.set_holder(std::nullopt);  // A gave way
  memory.take_orders();
  EXPECT_FALSE(memory.make_ready(kB));
  EXPECT_EQ(memory.take_orders(),
            (std::vector<Order>{{.job = kA, .kind = Kind::kMakeRoom, .depth = Depth::kSpill}}));
  EXPECT_FALSE(memory.make_ready(kB));
  EXPECT_TRUE(memory.take_orders().empty()) << "asked once";
  memory.made_room(kA, 100);
  EXPECT_TRUE(memory.make_ready(kB));
  EXPECT_EQ(memory.held(), 800);
  EXPECT_EQ(memory.access(kA), Access::kParked);
}

TEST(DeviceMemory, ALowerJobLeavesAndComesBack) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, spilling(800, 600, Depth::kLeave)).ok());
  ASSERT_TRUE(memory.make_ready(kA));
  memory.settle();
  EXPECT_FALSE(request(memory, kB, flexible({{700, 1}})).ok())
      << "equals do not send each other off";
  memory.take_orders();
  ASSERT_TRUE(request(memory, kB, flexible({{700, 1}}, 1)).ok());
  EXPECT_EQ(memory.access(kA), Access::kBarred);
  const auto orders = memory.take_orders();
  ASSERT_EQ(kinds(orders).front(), (std::pair{kA, Kind::kMakeRoom}));
  EXPECT_EQ(orders[0].depth, Depth::kLeave);
  EXPECT_FALSE(memory.admitted(kB));
  memory.made_room(kA, 0);
  memory.settle();
  EXPECT_TRUE(memory.admitted(kB));
  EXPECT_TRUE(memory.facts(kA).away);
  memory.remove(kB);
  memory.settle();
  EXPECT_EQ(memory.access(kA), Access::kParked);
  EXPECT_TRUE(memory.make_ready(kA));
}

TEST(DeviceMemory, WhoShrinksForANewcomerIsAsUrgentAsThat) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, flexible({{900, 10}, {500, 12}}, 1)).ok());
  EXPECT_EQ(memory.urgency(kA), 1);
  memory.take_orders();
  ASSERT_TRUE(request(memory, kB, flexible({{500, 10}}, 7)).ok());
  EXPECT_EQ(memory.urgency(kA), 7);
  memory.confirm(kA, generation_of(memory.take_orders(), kA), 1);
  memory.settle();
  EXPECT_EQ(memory.urgency(kA), 1);
}

TEST(DeviceMemory, ACurveMayComeLater) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, flexible({{900, 0}})).ok());
  EXPECT_FALSE(memory.check(demand_of(flexible({{500, 1}}))).ok());
  const JobSpec knows = flexible({{900, 10}, {400, 11}});
  ASSERT_TRUE(memory.change(kA, demand_of(knows), Depth::kPause).ok());
  memory.settle();
  EXPECT_EQ(kinds(memory.take_orders()).back(), (std::pair{kA, Kind::kUpdated}));
  EXPECT_TRUE(memory.check(demand_of(flexible({{500, 1}}))).ok());
  // A new curve may need more than the job has now: it hears when that is there.
  ASSERT_TRUE(request(memory, kB, flexible({{600, 1}, {100, 5}})).ok());
  memory.confirm(kA, generation_of(memory.take_orders(), kA), 400);
  memory.settle();
  ASSERT_TRUE(memory.admitted(kB));
  memory.take_orders();
  ASSERT_TRUE(memory.change(kA, demand_of(flexible({{800, 10}})), Depth::kPause).ok());
  memory.settle();
  const auto orders = memory.take_orders();
  EXPECT_EQ(kinds(orders), (Kinds{{kB, Kind::kLimit}}));
  memory.confirm(kB, generation_of(orders, kB), 100);
  memory.settle();
  EXPECT_EQ(kinds(memory.take_orders()), (Kinds{{kA, Kind::kLimit}, {kA, Kind::kUpdated}}));
}

TEST(DeviceMemory, BytesOverTheLimitAreNobodysElse) {
  DeviceMemory memory(1000);
  ASSERT_TRUE(request(memory, kA, flexible({{400, 1}})).ok());
  memory.confirm(kA, memory.take_orders()[0].limit.generation, 700);
  ASSERT_TRUE(request(memory, kB, flexible({{500, 1}})).ok());
  EXPECT_FALSE(memory.admitted(kB)) << "700 are in use, whatever was promised";
  EXPECT_EQ(memory.held(), 700);
}

TEST(DeviceMemory, ThoseWhoWereHereBeforeComeBackWithWhatTheyHave) {
  DeviceMemory memory(1000);
  memory.set_closed(true);
  const JobSpec a = flexible({{900, 10}, {500, 12}});
  ASSERT_TRUE(memory.readmit(kA, demand_of(a), Depth::kPause, 500, 500).ok());
  memory.settle();
  EXPECT_EQ(memory.facts(kA).limit, 500) << "it does not grow before the others are back";
  EXPECT_THAT(
      memory.readmit(kB, demand_of(flexible({{600, 1}})), Depth::kPause, 600, 600).error().message,
      HasSubstr("it has 600 bytes there, expected at most the 500"));
  const JobSpec away = spilling(800, 700, Depth::kLeave);
  ASSERT_TRUE(memory.readmit(kC, demand_of(away), Depth::kLeave, 800, 0).ok());
  memory.set_closed(false);
  memory.settle();
  EXPECT_TRUE(memory.facts(kC).away);
  memory.remove(kA);
  memory.settle();
  EXPECT_FALSE(memory.facts(kC).away);
}

// --- Every order of calls

// Three jobs that come, go, die and answer in every order. What they really have on the device is
// kept here, apart from the class's own counts: a job obeys its orders, as late as it
// likes, and uses all that it may.
struct World {
  struct Actor {
    bool known = false;  // requested and not removed
    bool admitted = false;
    Bytes uses = 0;  // really on the device
    Bytes plan = 0;  // what it takes when resident
    ByteLimit sent_limit;
    std::optional<Depth> asked;
    std::optional<ByteLimit> sent;  // a confirmation on its way
  };
  const std::vector<JobSpec>& specs;
  DeviceMemory memory;
  std::vector<Actor> actors = std::vector<Actor>(specs.size());
  std::optional<std::size_t> holder = {};

  void carry_out() {
    for (bool more = true; more;) {
      memory.set_holder(holder ? std::optional(JobId(*holder)) : std::nullopt);
      memory.settle();
      const auto orders = memory.take_orders();
      memory.take_changed();
      more = !orders.empty();
      for (const Order& order : orders) {
        Actor& actor = actors[order.job.index()];
        ASSERT_TRUE(actor.known) << "an order for nobody";
        if (order.kind == Kind::kLimit) actor.sent_limit = order.limit;
        if (order.kind == Kind::kAdmit) {
          actor.admitted = true;
          const JobSpec& spec = specs[order.job.index()];
          const bool spills = spec.deepest >= Depth::kSpill;
          actor.uses = spills ? spec.persistent_bytes : actor.sent_limit.bytes;
          actor.plan = actor.sent_limit.bytes;
        }
        if (order.kind == Kind::kMakeRoom) {
          ASSERT_NE(holder, order.job.index()) << "a holder is never asked";
          actor.asked = order.depth;
        }
      }
    }
  }
};

class Exhaustive {
 public:
  Exhaustive(std::vector<JobSpec> specs, Bytes capacity)
      : specs_(std::move(specs)), capacity_(capacity) {}

  void explore(int depth) {
    World world{specs_, DeviceMemory(capacity_)};
    explore(world, depth);
  }
  int states() const { return states_; }
  int admissions() const { return admissions_; }

 private:
  // What may happen to a job; false when it cannot now.
  using Action = bool (Exhaustive::*)(World&, std::size_t);

  bool come(World& world, std::size_t at) {
    auto& actor = world.actors[at];
    if (actor.known) return false;
    const JobSpec& spec = specs_[at];
    const bool fits = world.memory.check(demand_of(spec)).ok();
    const Status done = world.memory.request(JobId(at), demand_of(spec), spec.deepest);
    EXPECT_EQ(done.ok(), fits);
    actor.known = done.ok();
    return done.ok();
  }
  bool die(World& world, std::size_t at) {
    auto& actor = world.actors[at];
    if (!actor.known) return false;
    world.memory.remove(JobId(at));
    if (world.holder == at) world.holder.reset();
    actor = {};
    return true;
  }
  // It gets the device, if its memory can be there.
  bool hold(World& world, std::size_t at) {
    auto& actor = world.actors[at];
    if (!actor.admitted || world.holder || world.memory.access(JobId(at)) == Access::kBarred) {
      return false;
    }
    world.memory.set_holder(std::nullopt);
    if (world.memory.access(JobId(at)) == Access::kParked && !world.memory.make_ready(JobId(at))) {
      return true;  // others were asked
    }
    world.holder = at;
    actor.uses = actor.plan;
    return true;
  }
  // It ends a step and begins the next with the plan for its limit; the word of it is on its way.
  bool end_step(World& world, std::size_t at) {
    if (world.holder != at) return false;
    arrive(world, at);
    auto& actor = world.actors[at];
    actor.plan = actor.uses = actor.sent_limit.bytes;
    actor.sent = actor.sent_limit;
    return true;
  }
  bool arrive(World& world, std::size_t at) {
    auto& actor = world.actors[at];
    if (!actor.sent) return false;
    world.memory.confirm(JobId(at), actor.sent->generation, actor.sent->bytes);
    actor.sent.reset();
    return true;
  }
  // It gives the device back, perhaps in the middle of a step.
  bool give_way(World& world, std::size_t at) {
    if (world.holder != at) return false;
    arrive(world, at);
    world.holder.reset();
    return true;
  }
  bool answer(World& world, std::size_t at) {
    auto& actor = world.actors[at];
    if (!actor.asked) return false;
    const Bytes stays = *actor.asked == Depth::kLeave ? 0 : specs_[at].persistent_bytes;
    actor.uses = std::min(actor.uses, stays);
    actor.asked.reset();
    world.memory.made_room(JobId(at), actor.uses);
    return true;
  }

  void explore(const World& world, int depth) {
    check(world);
    if (::testing::Test::HasFatalFailure() || depth == 0) return;
    static constexpr Action kActions[] = {
        &Exhaustive::come,     &Exhaustive::die,    &Exhaustive::hold,  &Exhaustive::end_step,
        &Exhaustive::give_way, &Exhaustive::answer, &Exhaustive::arrive};
    for (std::size_t at = 0; at < specs_.size(); ++at) {
      for (Action action : kActions) {
        World next = world;
        if (!(this->*action)(next, at)) continue;
        next.carry_out();
        explore(next, depth - 1);
      }
    }
  }

  void check(const World& world) {
    ++states_;
    Bytes really = 0;
    for (std::size_t at = 0; at < specs_.size(); ++at) {
      const auto& actor = world.actors[at];
      if (!actor.admitted) continue;
      really += actor.uses;
      ASSERT_GE(actor.sent_limit.bytes, least_bytes(specs_[at])) << "asked for less than its least";
      ASSERT_LE(actor.sent_limit.bytes, specs_[at].memory);
    }
    ASSERT_LE(really, capacity_) << "more on the device than it has";
    ASSERT_LE(world.memory.held(), capacity_);
    ASSERT_GE(world.memory.held(), really);
    for (std::size_t at = 0; at < specs_.size(); ++at) comes_back(world, at);
    everybody_gets_in(world);
  }

  // A job that is not away can have the device as soon as the others have made room, without any
  // job having to run before: perhaps none can.
  void comes_back(World world, std::size_t at) {
    if (!world.actors[at].admitted) return;
    if (world.memory.access(JobId(at)) == Access::kBarred) return;
    for (std::size_t other = 0; other < specs_.size(); ++other) give_way(world, other);
    world.carry_out();
    answer_all(world);
    if (world.memory.access(JobId(at)) == Access::kBarred) return;
    hold(world, at);
    world.carry_out();
    answer_all(world);
    hold(world, at);
    ASSERT_TRUE(world.holder == at) << "job " << at << " cannot come back";
  }
  // Obedient jobs that run in turn: after a few rounds every newcomer is admitted, and every job
  // that is not away can have the device.
  void everybody_gets_in(World world) {
    std::set<std::size_t> held;
    for (int round = 0; round < 6; ++round) {
      for (std::size_t at = 0; at < specs_.size(); ++at) {
        if (world.holder && world.holder != at) continue;
        hold(world, at);
        world.carry_out();
        answer_all(world);
        hold(world, at);
        world.carry_out();
        if (world.holder == at) held.insert(at);
        end_step(world, at);
        give_way(world, at);
        world.carry_out();
        answer_all(world);
      }
    }
    for (std::size_t at = 0; at < specs_.size(); ++at) {
      const auto& actor = world.actors[at];
      if (!actor.known) continue;
      ASSERT_TRUE(actor.admitted) << "a newcomer waits for ever";
      ++admissions_;
      ASSERT_TRUE(held.contains(at) || world.memory.facts(JobId(at)).away) << "nobody starves";
    }
  }

  void answer_all(World& world) {
    for (std::size_t at = 0; at < specs_.size(); ++at) {
      if (answer(world, at)) world.carry_out();
    }
  }

  std::vector<JobSpec> specs_;
  Bytes capacity_;
  int states_ = 0;
  int admissions_ = 0;
};

TEST(DeviceMemory, KeepsItsInvariantsInEveryOrderOfCalls) {
  struct Case {
    std::vector<JobSpec> specs;
    Bytes capacity;
    int depth = 7;
  };
  const std::vector<Case> cases{
      {{flexible({{90, 1}, {50, 2}, {30, 3}}), flexible({{60, 1}, {40, 5}}, 1),
        flexible({{40, 1}, {20, 2}}, 2)},
       100},
      {{spilling(80, 10), spilling(70, 15), flexible({{40, 1}, {10, 2}})}, 100},
      {{spilling(80, 60, Depth::kLeave), spilling(70, 15, Depth::kLeave, 1),
        flexible({{90, 1}, {75, 2}}, 2)},
       100},
      {{spilling({{80, 1}, {50, 2}}, 10), spilling({{70, 1}, {40, 3}}, 15),
        flexible({{40, 1}, {30, 2}})},
       100},
      {{spilling({{60, 1}, {30, 2}}, 10), spilling({{90, 1}, {50, 2}}, 20, Depth::kLeave),
        flexible({{70, 1}, {55, 9}}, 1)},
       100},
      // When the third leaves, the second may come back once the first has shrunk.
      {{flexible({{60, 1}, {30, 2}}), spilling(50, 20, Depth::kLeave), flexible({{35, 1}}, 1)},
       100,
       8},
      // When the third leaves, the first may grow once the second has shrunk.
      {{spilling({{70, 1}, {30, 9}}, 10), flexible({{55, 1}, {20, 5}}), flexible({{12, 1}})}, 100},
  };
  for (const Case& one : cases) {
    Exhaustive exhaustive(one.specs, one.capacity);
    exhaustive.explore(one.depth);
    EXPECT_GT(exhaustive.states(), 4'000);
    EXPECT_GT(exhaustive.admissions(), 4'000);
  }
}

}  // namespace
}  // namespace regen::share
