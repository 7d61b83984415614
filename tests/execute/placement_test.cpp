// What a placement scope serves, what it passes on, and what it says when reality differs.
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>
#include <vector>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/placement/placement.h"

namespace regen::execute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tensor of that many bytes, which is one allocation.
at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::kByte);
}
const void* address(const at::Tensor& tensor) {
  return tensor.storage().data();
}

class Placement : public ::testing::Test {
 protected:
  PlacementScope enter() { return PlacementScope::enter(c10::kCPU, reserve_).value(); }
  bool in_reserve(const at::Tensor& tensor) const {
    return address(tensor) >= arena_.at(3072) && address(tensor) < arena_.at(4096);
  }
  bool in_arena(const at::Tensor& tensor) const {
    return address(tensor) >= arena_.at(0) && address(tensor) < arena_.at(4096);
  }

  std::shared_ptr<CpuDevice> device_ = make_cpu_device();
  MemoryBlock arena_ = device_->allocate_arena(4096).value();
  Reserve reserve_{arena_.at(3072), 1024, 64};
  std::array<PlacedSlot, 2> two_{{{100, arena_.at(1024)}, {200, arena_.at(0)}}};
};

TEST_F(Placement, TheNthAllocationGetsTheNthSlot) {
  auto scope = enter();
  scope.serve(two_, "op");
  const auto a = bytes(100);
  const auto b = bytes(200);
  EXPECT_EQ(scope.finish(), 0u);
  EXPECT_EQ(address(a), arena_.at(1024));
  EXPECT_EQ(address(b), arena_.at(0));
  EXPECT_TRUE(scope.deviations().empty());
}

TEST_F(Placement, AnUnforeseenSizeComesFromTheReserveAndTheRestIsServedAsPlanned) {
  auto scope = enter();
  scope.serve(two_, "aten::odd");
  const auto a = bytes(100);
  const auto extra = bytes(300);
  const auto b = bytes(200);
  const auto last = bytes(8);
  EXPECT_EQ(scope.finish(), 0u);
  EXPECT_TRUE(in_reserve(extra));
  EXPECT_TRUE(in_reserve(last));
  EXPECT_EQ(address(b), arena_.at(0));
  EXPECT_THAT(
      scope.deviations(),
      ElementsAre(Deviation{.label = "aten::odd", .unforeseen = 2, .unforeseen_bytes = 308}));
  // 300 bytes are 320 in steps of 64, and 8 are 64.
  EXPECT_EQ(reserve_.live_bytes(), 384);
  EXPECT_EQ(reserve_.peak_bytes(), 384);
}

TEST_F(Placement, ARequestOutOfTurnGetsTheSlotOfItsSize) {
  auto scope = enter();
  scope.serve(two_, "aten::swapped");
  const auto b = bytes(200);
  const auto a = bytes(100);
  EXPECT_EQ(scope.finish(), 0u);
  EXPECT_EQ(address(a), arena_.at(1024));
  EXPECT_EQ(address(b), arena_.at(0));
}

// The first slot lies over an input: a request that comes for it too early would destroy that.
TEST_F(Placement, ASlotOverAnInputIsForItsTurnOnly) {
  const std::array<PlacedSlot, 2> slots{{{200, arena_.at(1024)}, {100, arena_.at(0), false, true}}};
  auto scope = enter();
  scope.serve(slots, "aten::swapped");
  EXPECT_TRUE(in_reserve(bytes(100)));
  EXPECT_EQ(address(bytes(200)), arena_.at(1024));
  EXPECT_EQ(address(bytes(100)), arena_.at(0));
  EXPECT_EQ(scope.finish(), 0u);
  EXPECT_THAT(scope.unforeseen(), ElementsAre(100));
  EXPECT_FALSE(scope.refused());
}

TEST_F(Placement, WhenTheReserveIsFullBytesBesideThePlanServe) {
  auto scope = PlacementScope::enter(c10::kCPU, reserve_, 4096).value();
  scope.serve({}, "aten::greedy");
  const auto reserved = bytes(1000);
  {
    const auto beside = bytes(3000);
    EXPECT_FALSE(in_arena(beside));
    EXPECT_THROW(bytes(2000), c10::OutOfMemoryError);
    EXPECT_TRUE(scope.refused());
  }
  const auto again = bytes(4000);  // what was freed may be had again
  EXPECT_FALSE(in_arena(again));
  EXPECT_THROW(bytes(100), c10::OutOfMemoryError);
  scope.finish();
  EXPECT_THAT(scope.unforeseen(), ElementsAre(1000, 3000, 2000, 4000, 100));
  EXPECT_THAT(
      scope.deviations(),
      ElementsAre(Deviation{.label = "aten::greedy", .unforeseen = 3, .unforeseen_bytes = 8000}));
}

TEST_F(Placement, ASlotForAtMostSoManyBytesServesLessAndNotMore) {
  auto scope = enter();
  const std::array<PlacedSlot, 2> workspace{
      {{100, arena_.at(1024), true}, {200, arena_.at(0), true}}};
  scope.serve(workspace, "op");
  const auto less = bytes(40);
  const auto more = bytes(201);
  const auto all = bytes(200);
  EXPECT_EQ(scope.finish(), 0u);
  EXPECT_EQ(address(less), arena_.at(1024));
  EXPECT_TRUE(in_reserve(more));
  EXPECT_EQ(address(all), arena_.at(0));
}

TEST_F(Placement, APoolServesWhatNoSlotIsForAtTheLowestGap) {
  const std::array<PlacedSlot, 2> slots{{{.bytes = 100, .address = arena_.at(0)},
                                         {.bytes = 512, .address = arena_.at(1024), .pool = true}}};
  auto scope = enter();
  scope.serve(slots, "island");
  const auto result = bytes(100);
  auto first = bytes(100);  // 128 in steps of 64
  const auto second = bytes(300);
  EXPECT_EQ(address(result), arena_.at(0));
  EXPECT_EQ(address(first), arena_.at(1024));
  EXPECT_EQ(address(second), arena_.at(1024 + 128));
  EXPECT_EQ(live_bytes_of_call(), 500);
  first = at::Tensor();
  const auto third = bytes(128);
  EXPECT_EQ(address(third), arena_.at(1024));
  const auto fourth = bytes(128);  // 64 are left
  EXPECT_TRUE(in_reserve(fourth));
  EXPECT_EQ(live_bytes_of_call(), 528);  // not what the reserve has given
  EXPECT_EQ(scope.finish(), 0u);         // a pool need not be asked
  EXPECT_EQ(live_bytes_of_call(), 0);
  EXPECT_THAT(scope.deviations(),
              ElementsAre(Deviation{.label = "island", .unforeseen = 1, .unforeseen_bytes = 128}));
}

TEST_F(Placement, ANumberThatAnIslandMakesIsNoMemoryOfTheStep) {
  const std::array<PlacedSlot, 1> slots{{{.bytes = 512, .address = arena_.at(1024), .pool = true}}};
  auto scope = enter();
  scope.serve(slots, "island");
  const auto number = bytes(8);
  EXPECT_FALSE(in_arena(number));
  EXPECT_EQ(live_bytes_of_call(), 0);
  scope.finish();
  EXPECT_TRUE(scope.deviations().empty());
}

TEST_F(Placement, AnIslandCanSayThatItHasOutgrownItsResult) {
  auto scope = enter();
  scope.serve(two_, "island");
  EXPECT_FALSE(scope.refused());
  outgrow(1000);
  EXPECT_TRUE(scope.refused());
  EXPECT_EQ(scope.outgrown(), 1000);
  scope.finish();
  scope.serve(two_, "op");
  EXPECT_EQ(scope.outgrown(), 0);
  scope.finish();
}

TEST_F(Placement, SlotsThatNobodyAsksForAreReported) {
  auto scope = enter();
  scope.serve(two_, "aten::short");
  const auto a = bytes(100);
  EXPECT_EQ(scope.finish(), 1u);
  EXPECT_THAT(scope.deviations(), ElementsAre(Deviation{.label = "aten::short", .unasked = 1}));
}

// Both slots have one address: the first is to be freed before the second is asked for.
TEST_F(Placement, AnAddressStillInUseIsNotHandedOut) {
  const std::array<PlacedSlot, 2> shared{{{100, arena_.at(0)}, {100, arena_.at(64)}}};
  auto scope = enter();
  scope.serve(shared, "as recorded");
  bytes(100);
  EXPECT_EQ(address(bytes(100)), arena_.at(64));
  EXPECT_EQ(scope.finish(), 0u);

  scope.serve(shared, "too early");
  const auto a = bytes(100);
  const auto b = bytes(100);
  EXPECT_TRUE(in_reserve(b));
  EXPECT_EQ(scope.finish(), 1u);
}

TEST_F(Placement, AFullReserveIsAnErrorThatLeavesEverythingUsable) {
  auto scope = enter();
  scope.serve({}, "aten::greedy");
  const auto held = bytes(1000);
  try {
    bytes(100);
    FAIL() << "served from outside";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("aten::greedy asks for 100 B"));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("the reserve of 1.00 KiB has no room"));
  }
  scope.finish();
  EXPECT_FALSE(in_arena(bytes(100)));

  scope.serve(two_, "next");
  EXPECT_EQ(address(bytes(100)), arena_.at(1024));
  EXPECT_EQ(address(bytes(200)), arena_.at(0));
  EXPECT_EQ(scope.finish(), 0u);
}

TEST_F(Placement, AnOperatorThatThrowsLeavesEverythingUsable) {
  const auto a = at::empty({3, 4});
  auto scope = enter();
  scope.serve(two_, "aten::mm");
  EXPECT_THROW(at::mm(a, a), c10::Error);
  EXPECT_EQ(scope.finish(), 2u);
  scope.serve(two_, "next");
  EXPECT_EQ(address(bytes(100)), arena_.at(1024));
  scope.finish();
}

TEST_F(Placement, OutsideAnOperatorEverythingIsPassedOn) {
  c10::Allocator* const plain = c10::GetCPUAllocator();
  {
    auto scope = enter();
    EXPECT_NE(c10::GetCPUAllocator(), plain);
    EXPECT_FALSE(in_arena(bytes(100)));
    scope.serve(two_, "op");
    scope.finish();
    EXPECT_FALSE(in_arena(bytes(100)));
  }
  EXPECT_EQ(c10::GetCPUAllocator(), plain);
}

TEST_F(Placement, OtherThreadsArePassedOn) {
  auto scope = enter();
  scope.serve(two_, "op");
  at::Tensor other;
  std::thread([&] { other = bytes(100); }).join();
  EXPECT_FALSE(in_arena(other));
  EXPECT_EQ(address(bytes(100)), arena_.at(1024));
  scope.finish();
}

TEST_F(Placement, EachThreadHasItsOwnScope) {
  auto scope = enter();
  scope.serve(two_, "op");
  std::thread([&] {
    const std::array<PlacedSlot, 1> one{{{100, arena_.at(2048)}}};
    Reserve none;
    auto inner = PlacementScope::enter(c10::kCPU, none).value();
    inner.serve(one, "op of the other thread");
    EXPECT_EQ(address(bytes(100)), arena_.at(2048));
    EXPECT_EQ(inner.finish(), 0u);
  }).join();
  EXPECT_EQ(address(bytes(100)), arena_.at(1024));
  scope.finish();
}

TEST_F(Placement, ASecondScopeOnAThreadIsRefused) {
  {
    auto scope = enter();
    const auto again = PlacementScope::enter(c10::kCPU, reserve_);
    ASSERT_FALSE(again.ok());
    EXPECT_THAT(again.error().message, HasSubstr("inside another one"));
    EXPECT_FALSE(RecordingScope::enter(c10::kCPU).ok());
  }
  EXPECT_TRUE(RecordingScope::enter(c10::kCPU).ok());
  EXPECT_FALSE(PlacementScope::enter(c10::kMeta, reserve_).ok());
}

TEST_F(Placement, ZeroBytesAreNotCounted) {
  auto scope = enter();
  scope.serve(two_, "op");
  EXPECT_EQ(address(bytes(0)), nullptr);
  EXPECT_EQ(address(bytes(100)), arena_.at(1024));
  EXPECT_EQ(address(bytes(200)), arena_.at(0));
  EXPECT_EQ(scope.finish(), 0u);
}

// 100 bytes, nothing, 200 bytes: every other request is refused and leaves no trace.
TEST_F(Placement, WhatIsNotAsRecordedCanBeRefused) {
  const std::array<PlacedSlot, 3> slots{{two_[0], {0, nullptr}, two_[1]}};
  auto scope = enter();
  scope.serve(slots, "op", Unforeseen::kRefuse);
  EXPECT_THROW(bytes(0), c10::OutOfMemoryError);
  EXPECT_THROW(bytes(99), c10::OutOfMemoryError);
  const auto a = bytes(100);
  EXPECT_THROW(bytes(200), c10::OutOfMemoryError);
  EXPECT_EQ(address(bytes(0)), nullptr);
  EXPECT_THROW(bytes(0), c10::OutOfMemoryError);
  const auto b = bytes(200);
  EXPECT_THROW(bytes(1), c10::OutOfMemoryError);
  EXPECT_EQ(scope.finish(), 0u);
  EXPECT_EQ(address(a), arena_.at(1024));
  EXPECT_EQ(address(b), arena_.at(0));
  EXPECT_TRUE(scope.deviations().empty());
  EXPECT_EQ(reserve_.peak_bytes(), 0);
}

TEST_F(Placement, SlotsOfNothingDoNotMatterOtherwise) {
  const std::array<PlacedSlot, 4> slots{{{0, nullptr}, two_[0], two_[1], {0, nullptr}}};
  auto scope = enter();
  scope.serve(slots, "op");
  EXPECT_EQ(address(bytes(100)), arena_.at(1024));
  EXPECT_EQ(address(bytes(0)), nullptr);
  EXPECT_EQ(address(bytes(200)), arena_.at(0));
  EXPECT_EQ(scope.finish(), 0u);
  EXPECT_TRUE(scope.deviations().empty());
}

TEST(RecordingUnderACap, RefusesAllButResultsAbove) {
  auto scope = RecordingScope::enter(c10::kCPU).value();
  scope.start({.empty_requests = true, .cap = 150, .results = {500, 400}});
  const auto first = bytes(500);
  EXPECT_THROW(bytes(500), c10::OutOfMemoryError);
  EXPECT_THROW(bytes(151), c10::OutOfMemoryError);
  bytes(150);
  bytes(0);
  const auto second = bytes(400);
  const auto recorded = scope.stop();
  ASSERT_EQ(recorded.size(), 4u);
  EXPECT_THAT(
      (std::array{recorded[0].bytes, recorded[1].bytes, recorded[2].bytes, recorded[3].bytes}),
      ElementsAre(500, 150, 0, 400));
  EXPECT_EQ(recorded[0].death, RecordedAllocation::kAlive);
  EXPECT_NE(recorded[1].death, RecordedAllocation::kAlive);
  EXPECT_NE(recorded[2].death, RecordedAllocation::kAlive);
  EXPECT_EQ(recorded[3].death, RecordedAllocation::kAlive);
}

TEST_F(Placement, TensorsOutliveTheScopeAndTheReserve) {
  at::Tensor placed;
  at::Tensor reserved;
  at::Tensor resized;
  {
    Reserve reserve(arena_.at(2048), 1024, 64);
    auto scope = PlacementScope::enter(c10::kCPU, reserve).value();
    scope.serve(two_, "op");
    placed = bytes(100);
    resized = bytes(200);
    reserved = bytes(300);
    scope.finish();
  }
  // Its storage asks the allocator that made it, which passes on now.
  resized.resize_({1000});
  EXPECT_FALSE(in_arena(resized));
  std::thread([t = std::move(reserved)]() mutable { t.reset(); }).join();
  placed.reset();
}

TEST_F(Placement, BareAddressesAreFreedByWhoeverGaveThem) {
  c10::Allocator* const plain = c10::GetCPUAllocator();
  void* before = plain->raw_allocate(100);
  auto scope = enter();
  c10::Allocator* const hooked = c10::GetCPUAllocator();
  scope.serve(two_, "op");
  void* slot = hooked->raw_allocate(100);
  void* extra = hooked->raw_allocate(64);
  EXPECT_EQ(slot, arena_.at(1024));
  hooked->raw_deallocate(slot);
  EXPECT_EQ(reserve_.live_blocks(), 1u);
  hooked->raw_deallocate(extra);
  EXPECT_EQ(reserve_.live_blocks(), 0u);
  hooked->raw_deallocate(before);
  scope.finish();
}

TEST(Recording, CountsBirthsAndDeathsTogether) {
  const auto before = bytes(8);
  auto scope = RecordingScope::enter(c10::kCPU).value();
  auto old = bytes(16);
  scope.start();
  auto a = bytes(100);  // 0
  auto b = bytes(200);  // 1
  a.reset();            // 2
  old.reset();          // not of this call
  bytes(0);             // nothing
  auto c = bytes(300);  // 3
  const auto recorded = scope.stop();
  c.reset();

  ASSERT_EQ(recorded.size(), 3u);
  EXPECT_EQ(recorded[0].bytes, 100);
  EXPECT_EQ(recorded[0].birth, 0u);
  EXPECT_EQ(recorded[0].death, 2u);
  EXPECT_EQ(recorded[1].bytes, 200);
  EXPECT_EQ(recorded[1].birth, 1u);
  EXPECT_EQ(recorded[1].death, RecordedAllocation::kAlive);
  EXPECT_EQ(recorded[2].birth, 3u);
  EXPECT_EQ(find_allocation(recorded, address(b)), 1);
  EXPECT_EQ(find_allocation(recorded, address(before)), -1);
}

TEST(Recording, TensorsOutliveTheScope) {
  at::Tensor kept;
  {
    auto scope = RecordingScope::enter(c10::kCPU).value();
    scope.start();
    kept = bytes(1000);
    scope.stop();
  }
  kept.fill_(1);
  std::thread([t = std::move(kept)]() mutable { t.reset(); }).join();
}

TEST(Reserve, TakesTheLowestGapThatFits) {
  const auto device = make_cpu_device();
  const auto arena = device->allocate_arena(1024).value();
  Reserve reserve(arena.data(), 1024, 64);
  void* a = reserve.take(200);  // [0, 256)
  void* b = reserve.take(64);   // [256, 320)
  void* c = reserve.take(500);  // [320, 832)
  EXPECT_EQ(a, arena.at(0));
  EXPECT_EQ(b, arena.at(256));
  EXPECT_EQ(c, arena.at(320));
  EXPECT_EQ(reserve.take(193), nullptr);  // 256 bytes, but 192 are left
  EXPECT_TRUE(Reserve::give(a));
  EXPECT_EQ(reserve.take(64), arena.at(0));
  EXPECT_EQ(reserve.take(192), arena.at(64));
  EXPECT_EQ(reserve.peak_bytes(), 832);
  EXPECT_EQ(reserve.take(192), arena.at(832));
  EXPECT_EQ(reserve.take(1), nullptr);
  EXPECT_FALSE(Reserve::give(arena.at(1024)));
}

}  // namespace
}  // namespace regen::execute
