// Gradients and room of the arena that the caller has between two steps.
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "regen/execute/placement/lent_results.h"
#include "regen/execute/placement/lent_room.h"
#include "regen/execute/placement/placement.h"
#include "regen/graph/analysis.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

const ChainOptions kChain{.layers = 6, .dropout = true, .batch_norm = true, .boundary = true};

at::Tensor bytes(std::int64_t count) {
  return at::empty({count}, at::kByte);
}

class LendingFixture : public StepFixture {
 public:
  explicit LendingFixture(const ChainOptions& chain = kChain, bool lends = true)
      : StepFixture(make_chain(chain)) {
    auto step =
        make_step_graph(*recording_, {.alignment = device_->alignment(), .lends_gradients = lends});
    EXPECT_TRUE(step.ok()) << step.error().message;
    step_ = std::make_shared<const StepGraph>(std::move(*step));
  }

  std::unique_ptr<Executor> bound(const Plan& plan) {
    auto executor =
        Executor::compile(recording_, step_, plan, device_, {.reserve = 1 << 14, .debug = true});
    EXPECT_TRUE(executor.ok()) << executor.error().message;
    EXPECT_TRUE(bind(**executor, data()).ok());
    return std::move(*executor);
  }

  std::size_t gradients() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        program().results,
        [](const ProgramResult& result) { return result.kind == ResultKind::kGradient; }));
  }
};

void run_step(Executor& executor) {
  for (std::size_t part = 0; part < executor.num_parts(); ++part) {
    const Status status = executor.run(part);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
}

std::vector<at::Tensor> gradients_of(Executor& executor) {
  std::vector<at::Tensor> tensors;
  for (const std::size_t r : executor.lent_results()) tensors.push_back(executor.result(r));
  return tensors;
}

std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  all.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) all.push_back(tensor.contiguous().clone());
  return all;
}

// --- the graph

TEST(LentGradients, ArePlannedAndNothingElseIs) {
  LendingFixture lent;
  LendingFixture own(kChain, false);
  const auto fixed = [](const StepGraph& step) {
    std::size_t count = 0;
    for (const TensorId t : step.graph.tensors()) count += step.graph.fixed(t);
    return count;
  };
  EXPECT_EQ(fixed(own.step()) - fixed(lent.step()), lent.gradients());
  EXPECT_LT(lent.graph().fixed_bytes(), own.graph().fixed_bytes());
  EXPECT_LE(live_bytes_keep_all(lent.graph()).peak_bytes,
            live_bytes_keep_all(own.graph()).peak_bytes);
}

TEST(LentGradients, AStepInOnePartHasNone) {
  const ChainOptions chain{.layers = 3};
  EXPECT_EQ(LendingFixture(chain).graph().fingerprint(),
            LendingFixture(chain, false).graph().fingerprint());
}

// --- the results

class LendingPlan : public ::testing::TestWithParam<const char*> {
 protected:
  Plan plan(LendingFixture& fixture) const {
    const std::string planner = GetParam();
    return *(planner == "keep_all" ? fixture.solve(planner) : fixture.tightest(planner)).plan;
  }
};

TEST_P(LendingPlan, GivesTheBitsOfDirectCalls) {
  LendingFixture fixture;
  expect_same_bits(fixture.run(plan(fixture), 3), fixture.run_directly(3));
}

TEST_P(LendingPlan, GradientsLieInTheArenaUntilTheyAreDropped) {
  LendingFixture fixture;
  auto executor = fixture.bound(plan(fixture));
  run_step(*executor);
  auto gradients = gradients_of(*executor);
  ASSERT_EQ(gradients.size(), fixture.gradients());
  EXPECT_EQ(executor->in_arena({}).size(), gradients.size());
  EXPECT_GT(executor->lent_bytes(), 0);
  gradients.pop_back();
  EXPECT_EQ(executor->in_arena({}).size(), gradients.size());
  gradients.clear();
  EXPECT_EQ(executor->lent_bytes(), 0);
  run_step(*executor);
}

INSTANTIATE_TEST_SUITE_P(All, LendingPlan, ::testing::Values("keep_all", "checkmate", "vdnn"),
                         [](const auto& one) { return std::string(one.param); });

TEST(LentGradients, TheNextStepIsRefusedWhileOneIsHeldAndNothingOfItIsChanged) {
  LendingFixture fixture;
  auto executor = fixture.bound(*fixture.solve("keep_all").plan);
  run_step(*executor);
  const at::Tensor held = gradients_of(*executor).front();
  const at::Tensor before = held.contiguous().clone();
  const Status status = executor->run(0);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("are still in use outside, expected them to be"));
  expect_same_bits({held.contiguous()}, {before});
}

TEST(LentGradients, OneThatIsMovedKeepsItsContentsAndItsTensors) {
  LendingFixture fixture;
  auto executor = fixture.bound(*fixture.solve("keep_all").plan);
  for (const bool through_host : {false, true}) {
    run_step(*executor);
    auto gradients = gradients_of(*executor);
    const auto before = copies(gradients);
    const at::Tensor view = gradients.front().view({-1});
    const void* in_arena = gradients.front().storage().data();
    if (through_host) {
      const auto moved = move_to_host(executor->in_arena({}));
      EXPECT_EQ(view.storage().data(), nullptr);
      move_back(moved);
    } else {
      move_to_own_memory(executor->in_arena({}));
    }
    EXPECT_NE(gradients.front().storage().data(), in_arena);
    EXPECT_EQ(view.storage().data(), gradients.front().storage().data());
    executor = fixture.bound(*fixture.solve("keep_all").plan);  // the arena's next contents
    run_step(*executor);
    expect_same_bits(copies(gradients), before);
  }
}

TEST(LentGradients, KeepTheArenaOfAnExecutorThatIsGone) {
  LendingFixture fixture;
  auto executor = fixture.bound(*fixture.solve("keep_all").plan);
  run_step(*executor);
  const auto gradients = gradients_of(*executor);
  const auto before = copies(gradients);
  executor.reset();
  expect_same_bits(copies(gradients), before);
}

TEST(LentGradients, AResultThatIsAskedForAgainIsACopy) {
  LendingFixture fixture;
  auto executor = fixture.bound(*fixture.solve("keep_all").plan);
  run_step(*executor);
  const std::size_t r = executor->lent_results().front();
  const at::Tensor first = executor->result(r);
  const at::Tensor second = executor->result(r);
  EXPECT_NE(first.storage().data(), second.storage().data());
  expect_same_bits({first.contiguous()}, {second.contiguous()});
}

// --- the room between two steps

class Room : public ::testing::Test {
 protected:
  static constexpr Bytes kArena = 1 << 16;

  bool in(const at::Tensor& tensor, Bytes begin, Bytes end) const {
    const auto* at = static_cast<const std::byte*>(tensor.storage().data());
    const auto* data = static_cast<const std::byte*>(arena_->data());
    return at >= data + begin && at + tensor.nbytes() <= data + end;
  }
  std::shared_ptr<LentRoom> open(const LentRoom::Ranges& free) {
    return LentRoom::open(arena_, free, c10::kCPU, 64).value();
  }

  std::shared_ptr<CpuDevice> device_ = make_cpu_device();
  std::shared_ptr<MemoryBlock> arena_ =
      std::make_shared<MemoryBlock>(device_->allocate_arena(kArena).value());
};

TEST_F(Room, ServesWhatFitsAndLeavesTheRestToTorch) {
  const auto room = open({{0, 8192}, {16384, kArena}});
  const auto large = bytes(40000);
  const auto middle = bytes(8000);
  const auto small = bytes(100);
  const auto none = bytes(20000);
  EXPECT_TRUE(in(large, 16384, kArena));
  EXPECT_TRUE(in(middle, 0, 8192));
  EXPECT_FALSE(room->holds(small.storage().data()));
  EXPECT_FALSE(room->holds(none.storage().data()));
  EXPECT_GE(room->held_bytes(), 48000);
  EXPECT_TRUE(room->holds(large.storage().data()));
  room->close();
  EXPECT_FALSE(room->holds(bytes(5000).storage().data()));
}

TEST_F(Room, WhatIsFreedServesAgain) {
  const auto room = open({{0, kArena}});
  const void* first = bytes(60000).storage().data();
  EXPECT_EQ(room->held_bytes(), 0);
  EXPECT_EQ(bytes(60000).storage().data(), first);
  room->close();
}

TEST_F(Room, OtherThreadsAreNotServed) {
  const auto room = open({{0, kArena}});
  std::thread([&] { EXPECT_FALSE(room->holds(bytes(5000).storage().data())); }).join();
  room->close();
}

TEST_F(Room, ClosedByAnotherThreadItServesNoMore) {
  const auto room = open({{0, kArena}});
  std::thread([&] { room->close(); }).join();
  EXPECT_FALSE(room->holds(bytes(5000).storage().data()));
  const auto next = open({{0, kArena}});
  EXPECT_TRUE(next->holds(bytes(5000).storage().data()));
  next->close();
}

TEST_F(Room, WhatIsLeftKeepsTheArena) {
  auto room = open({{0, kArena}});
  at::Tensor left = bytes(5000);
  left.fill_(7);
  EXPECT_TRUE(room->holds(left.storage().data()));
  room->close();
  room.reset();
  const std::weak_ptr<MemoryBlock> arena = arena_;
  arena_.reset();
  EXPECT_TRUE(left.eq(7).all().item<bool>());
  std::thread([&] { left.reset(); }).join();
  EXPECT_TRUE(arena.expired());
}

TEST_F(Room, IsRefusedInsideAStep) {
  Reserve reserve(arena_->data(), 4096, 64);
  auto scope = PlacementScope::enter(c10::kCPU, reserve).value();
  EXPECT_FALSE(LentRoom::open(arena_, {{8192, kArena}}, c10::kCPU, 64).ok());
}

TEST_F(Room, BlocksOfARandomOwnerNeverOverlap) {
  std::mt19937 random(41);
  const auto room = open({{64, 20000}, {20032, kArena}});
  std::vector<at::Tensor> live;
  std::size_t served = 0;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 6 || (!live.empty() && random() % 2 == 0)) {
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(random() % live.size()));
      continue;
    }
    live.push_back(bytes(4096 + static_cast<std::int64_t>(random() % 16000)));
    served += room->holds(live.back().storage().data());
    for (std::size_t k = 0; k + 1 < live.size(); ++k) {
      const auto* a = static_cast<const std::byte*>(live.back().storage().data());
      const auto* b = static_cast<const std::byte*>(live[k].storage().data());
      EXPECT_TRUE(a + live.back().nbytes() <= b || b + live[k].nbytes() <= a);
    }
  }
  EXPECT_GT(served, 500U);
  live.clear();
  EXPECT_EQ(room->held_bytes(), 0);
  room->close();
}

TEST(LentRoomOfAStep, LeavesTheGradientsAlone) {
  LendingFixture fixture;
  auto executor = fixture.bound(*fixture.tightest("checkmate").plan);
  run_step(*executor);
  auto gradients = gradients_of(*executor);
  const auto before = copies(gradients);
  ASSERT_TRUE(executor->lend_room().ok());
  std::vector<at::Tensor> scratch;
  for (int i = 0; i < 40; ++i) {
    scratch.push_back(bytes(4096));
    scratch.back().fill_(0xff);
  }
  EXPECT_GT(executor->room_bytes(), 0);
  executor->close_room();
  expect_same_bits(copies(gradients), before);

  gradients.clear();
  ASSERT_FALSE(executor->run(0).ok()) << "scratch is left in the arena";
  const auto contents = copies(scratch);
  move_to_own_memory(executor->in_arena(scratch));
  EXPECT_EQ(executor->room_bytes(), 0);
  run_step(*executor);
  expect_same_bits(copies(scratch), contents);
}

}  // namespace
}  // namespace regen::execute
