// A step whose memory goes and comes back: before every instruction, between parts, between steps,
// and when there is no room for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "regen/execute/device/memory_meter.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

TEST(ReleasableArena, ComesBackAtItsAddressWithoutItsContents) {
  const auto device = make_cpu_device();
  const Bytes before = memory_use(c10::kCPU)->allocated;
  MemoryBlock arena = *device->allocate_arena(10'000, ArenaKind::kReleasable);
  EXPECT_EQ(memory_use(c10::kCPU)->allocated - before, arena.bytes());
  void* const address = arena.data();
  std::memset(address, 7, 10'000);
  ASSERT_TRUE(arena.release_pages().ok());
  EXPECT_FALSE(arena.present());
  EXPECT_TRUE(arena.release_pages().ok());
  EXPECT_EQ(memory_use(c10::kCPU)->allocated, before);
  ASSERT_TRUE(arena.take_pages().ok());
  EXPECT_EQ(arena.data(), address);
  EXPECT_EQ(static_cast<const char*>(address)[9'999], 0);
  std::memset(address, 8, 10'000);
  EXPECT_EQ(memory_use(c10::kCPU)->allocated - before, arena.bytes());
  ASSERT_TRUE(arena.release_pages().ok());
  arena = MemoryBlock();
  EXPECT_EQ(memory_use(c10::kCPU)->allocated, before);
}

TEST(ReleasableArena, OnlyWhereItWasAskedFor) {
  const auto device = make_cpu_device();
  MemoryBlock arena = *device->allocate_arena(10'000);
  EXPECT_THAT(arena.release_pages().error().message, HasSubstr("cannot be released"));
  EXPECT_TRUE(arena.present());
  MemoryBlock host = *device->allocate_host(10'000);
  EXPECT_THAT(host.release_pages().error().message, HasSubstr("expected a releasable arena"));
  std::memset(arena.data(), 1, 10'000);
  std::memset(host.data(), 1, 10'000);
}

TEST(ReleasableArena, IsRefusedWhereThereIsNoRoomAndCanBeAskedForAgain) {
  const auto device = make_cpu_device({.arena_bytes = 10'000});
  EXPECT_EQ(device->allocate_arena(20'000).error().code, ErrorCode::kLimit);
  MemoryBlock first = *device->allocate_arena(6'400, ArenaKind::kReleasable);
  EXPECT_EQ(device->allocate_arena(6'400).error().code, ErrorCode::kLimit);
  ASSERT_TRUE(first.release_pages().ok());
  {
    const MemoryBlock second = *device->allocate_arena(6'400);
    const Status refused = first.take_pages();
    EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
    EXPECT_THAT(refused.error().message, HasSubstr("are free"));
    EXPECT_FALSE(first.present());
  }
  EXPECT_TRUE(first.take_pages().ok());
}

TEST(Ranges, AreMergedWhereTheyTouchOrNearlySo) {
  using Ranges = std::vector<MemoryRange>;
  EXPECT_EQ(merge_ranges({{100, 50}, {0, 10}, {150, 5}, {120, 10}, {7, 0}}, 0),
            (Ranges{{0, 10}, {100, 55}}));
  EXPECT_EQ(merge_ranges({{0, 10}, {12, 3}, {20, 1}}, 2), (Ranges{{0, 15}, {20, 1}}));
  EXPECT_TRUE(merge_ranges({}, 5).empty());
  EXPECT_EQ(total_bytes(Ranges{{0, 10}, {100, 55}}), 65);
}

// --- steps

class SpillFixture : public StepFixture {
 public:
  explicit SpillFixture(const ChainOptions& options, const CpuDeviceOptions& device = {})
      : StepFixture(make_chain(options), device) {}

  std::unique_ptr<Executor> compile_releasable(const Plan& plan) {
    auto executor = Executor::compile(recording_, step_, plan, device_,
                                      {.reserve = 1 << 14, .debug = true, .releasable = true});
    EXPECT_TRUE(executor.ok()) << executor.error().message;
    EXPECT_TRUE(data_->reload().ok());
    EXPECT_TRUE(execute::bind(**executor, *data_).ok());
    at::manual_seed(kTestSeed);
    return std::move(*executor);
  }

  void run_step(Executor& executor) {
    for (std::size_t part = 0; part < executor.num_parts(); ++part) {
      const Status status = executor.run(part);
      EXPECT_TRUE(status.ok()) << status.error().message;
    }
  }

  std::vector<at::Tensor> left_by(Executor& executor) {
    return left([&](std::size_t r) { return executor.result(r); });
  }

  // Bytes of all tensors that are on the device before each step of the plan, by the plan's
  // meaning.
  std::vector<Bytes> live_before_steps(const Plan& plan) const {
    std::set<TensorId> there;
    std::vector<Bytes> live;
    for (const Step& step : plan.steps) {
      Bytes sum = 0;
      for (const TensorId t : there) sum += program_bytes(t);
      live.push_back(sum);
      if (step.kind() == StepKind::kCompute) {
        for (const TensorId t : graph().makes(step.variant(graph()))) there.insert(t);
        if (graph().overwrites(step.variant(graph())).valid())
          there.erase(graph().overwrites(step.variant(graph())));
      } else if (step.kind() == StepKind::kFetch) {
        there.insert(step.tensor());
      } else if (step.kind() == StepKind::kRelease) {
        there.erase(step.tensor());
      }
    }
    return live;
  }

  Bytes result_bytes() const {
    Bytes sum = 0;
    std::set<std::size_t> counted;
    for (const ProgramResult& result : program_.results) {
      const StorageId storage = recording_->program.values[result.value].storage;
      const bool planned = !graph().fixed(step_->tensors[storage]);
      if (planned && counted.insert(storage.index()).second)
        sum += recording_->program.storages[storage].bytes;
    }
    return sum;
  }

 private:
  Bytes program_bytes(TensorId t) const {
    return recording_->program.storages[step_->storages[t]].bytes;
  }
};

struct Case {
  std::string name;
  ChainOptions chain;
  std::string planner;
  bool tight;
};

class Spill : public ::testing::TestWithParam<Case> {
 protected:
  Plan plan(SpillFixture& fixture) const {
    const Case& c = GetParam();
    search::Outcome outcome = c.tight ? fixture.tightest(c.planner) : fixture.solve(c.planner);
    EXPECT_TRUE(outcome.plan.has_value());
    return *outcome.plan;
  }
};

TEST_P(Spill, BeforeEveryInstructionChangesNoBit) {
  SpillFixture fixture(GetParam().chain, {.copy_bytes_per_second = 2e8});
  const Plan chosen = plan(fixture);
  const auto expected = fixture.run_directly(2);
  auto executor = fixture.compile_releasable(chosen);
  const Bytes before = memory_use(c10::kCPU)->allocated;
  std::size_t spills = 0;
  Bytes most = 0;
  executor->before_each_instruction([&](std::size_t) {
    most = std::max(most, executor->live_bytes());
    const auto freed = executor->spill();
    ASSERT_TRUE(freed.ok()) << freed.error().message;
    EXPECT_EQ(*freed, executor->arena_bytes());
    EXPECT_LE(memory_use(c10::kCPU)->allocated, before - *freed + (1 << 14));
    EXPECT_EQ(*executor->spill(), 0);
    ASSERT_TRUE(executor->restore().ok());
    ++spills;
  });
  for (int i = 0; i < 2; ++i) fixture.run_step(*executor);
  EXPECT_GE(spills, 2 * chosen.steps.size() / 2);
  EXPECT_EQ(most, executor->largest_live_bytes());
  EXPECT_TRUE(executor->deviations().empty());
  expect_same_bits(fixture.left_by(*executor), expected);
}

TEST_P(Spill, CopiesNoMoreThanWhatThePlanKeeps) {
  SpillFixture fixture(GetParam().chain);
  const Plan chosen = plan(fixture);
  const std::vector<Bytes> live = fixture.live_before_steps(chosen);
  auto executor = fixture.compile_releasable(chosen);
  EXPECT_EQ(executor->live_bytes(), 0);
  std::size_t seen = chosen.steps.size();
  std::size_t exact = 0;
  executor->before_each_instruction([&](std::size_t step) {
    const bool compute = chosen.steps[step].kind() == StepKind::kCompute;
    if (!compute || step == seen) return;  // its copies and waits come first
    seen = step;
    EXPECT_LE(executor->live_bytes(), live[step]) << step;
    exact += executor->live_bytes() == live[step];
  });
  fixture.run_step(*executor);
  EXPECT_GT(exact, 3u);
  EXPECT_EQ(executor->live_bytes(),
            fixture.result_bytes());  // between steps, what may be asked for
  EXPECT_LE(executor->largest_live_bytes(), executor->arena_bytes());
}

INSTANTIATE_TEST_SUITE_P(
    Plans, Spill,
    ::testing::Values(Case{"keep_all", {.layers = 4, .dropout = true}, "keep_all", false},
                      Case{"update", {.layers = 3, .update = true}, "keep_all", false},
                      Case{"recompute", {.layers = 5, .dropout = true}, "checkmate", true},
                      Case{"batch_norm", {.layers = 4, .batch_norm = true}, "checkmate", true},
                      Case{"moves", {.layers = 5}, "vdnn", false},
                      Case{"boundary", {.layers = 4, .boundary = true}, "checkmate", true},
                      Case{"auto", {.layers = 5, .dropout = true, .update = true}, "auto", true}),
    [](const ::testing::TestParamInfo<Case>& which) { return which.param.name; });

TEST(SpillBetweenParts, TheBackwardPassGoesOnInPlace) {
  SpillFixture fixture({.layers = 4, .boundary = true});
  const Plan plan = *fixture.tightest("checkmate").plan;
  const auto expected = fixture.run_directly(1);
  auto executor = fixture.compile_releasable(plan);
  executor->cut_backward(1);
  ASSERT_GT(executor->num_parts(), 3u);
  for (std::size_t part = 0; part < executor->num_parts(); ++part) {
    ASSERT_TRUE(executor->run(part).ok());
    ASSERT_TRUE(executor->spill().ok());
    EXPECT_TRUE(executor->spilled());
    const std::size_t next = part + 1 < executor->num_parts() ? part + 1 : 0;
    EXPECT_THAT(executor->run(next).error().message, HasSubstr("expected restore()"));
    ASSERT_TRUE(executor->restore().ok());
  }
  expect_same_bits(fixture.left_by(*executor), expected);
}

TEST(SpillBetweenSteps, ARefusedRestoreCanBeTriedAgain) {
  // Room for the arena and the little that the recording takes, not for two.
  SpillFixture probe({.layers = 3, .update = true});
  const Plan plan = *probe.solve("keep_all").plan;
  const Bytes arena = probe.compile_releasable(plan)->arena_bytes();
  SpillFixture fixture({.layers = 3, .update = true}, {.arena_bytes = arena + arena / 2});
  const Plan same = *fixture.solve("keep_all").plan;
  const auto expected = fixture.run_directly(2);
  auto executor = fixture.compile_releasable(same);
  fixture.run_step(*executor);
  EXPECT_FALSE(fixture.device()->allocate_arena(arena).ok());
  ASSERT_EQ(*executor->spill(), arena);
  EXPECT_ANY_THROW(executor->result(0));
  {
    const auto other = fixture.device()->allocate_arena(arena);
    ASSERT_TRUE(other.ok()) << other.error().message;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(executor->restore().error().code, ErrorCode::kLimit);
      EXPECT_TRUE(executor->spilled());
    }
  }
  ASSERT_TRUE(executor->restore().ok());
  EXPECT_TRUE(executor->restore().ok());
  fixture.run_step(*executor);
  expect_same_bits(fixture.left_by(*executor), expected);
}

TEST(SpillBetweenSteps, AnExecutorMayEndWhileItsMemoryIsAway) {
  SpillFixture fixture({.layers = 2});
  auto executor = fixture.compile_releasable(*fixture.solve("keep_all").plan);
  fixture.run_step(*executor);
  ASSERT_TRUE(executor->spill().ok());
  const Bytes before = memory_use(c10::kCPU)->allocated;
  executor.reset();
  EXPECT_LE(memory_use(c10::kCPU)->allocated, before);
}

TEST(SpillBetweenSteps, IsRefusedForAnExecutorThatWasNotMadeForIt) {
  SpillFixture fixture({.layers = 2});
  auto executor = *fixture.compile(*fixture.solve("keep_all").plan);
  EXPECT_THAT(executor->spill().error().message,
              HasSubstr("expected it to be compiled with releasable=True"));
  EXPECT_FALSE(executor->spilled());
  EXPECT_TRUE(executor->restore().ok());
  // After a failed step nothing is under way, and nothing is live.
  EXPECT_EQ(executor->live_bytes(), 0);
}

}  // namespace
}  // namespace regen::execute
