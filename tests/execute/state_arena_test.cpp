// State in one arena: tensors that are moved, sent away, brought back and replaced, against plain
// copies of what they held.
#include "regen/execute/placement/state_arena.h"

#include <ATen/Context.h>
#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/placement/storage_memory.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

struct State {
  State() {
    at::manual_seed(4);
    weight = at::randn({30, 17});
    transposed = at::randn({8, 9}).t();
    half = at::randn({5}).to(at::kHalf);
    count = at::full({}, 3, at::kLong);
    row = weight.select(0, 3);  // shares the weight's storage
    inner = at::randn({4, 100}).slice(1, 10, 90);
    step = at::full({}, 12.0);
    empty = at::empty({0});
    for (const at::Tensor& tensor : tensors()) copies.push_back(tensor.clone());
    step_copy = step.clone();
  }

  std::vector<at::Tensor> tensors() const {
    return {weight, transposed, half, count, row, inner, empty};
  }

  void expect_unchanged() const {
    const auto now = tensors();
    for (std::size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(now[i].equal(copies[i])) << i;
    EXPECT_TRUE(step.equal(step_copy));
  }

  at::Tensor weight, transposed, half, count, row, inner, step, empty;
  std::vector<at::Tensor> copies;
  at::Tensor step_copy;
};

class StateArenaTest : public ::testing::Test {
 protected:
  std::unique_ptr<StateArena> pack(const State& state) {
    auto packed = StateArena::pack(state.tensors(), {state.step}, device_);
    EXPECT_TRUE(packed.ok()) << packed.error().message;
    return std::move(*packed);
  }

  std::shared_ptr<CpuDevice> device_ = make_cpu_device();
};

TEST_F(StateArenaTest, TensorsStayTheSameTensorsInOneStretchOfMemory) {
  const State state;
  const c10::TensorImpl* identity = state.transposed.unsafeGetTensorImpl();
  const auto strides = state.transposed.strides().vec();
  const auto arena = pack(state);
  state.expect_unchanged();
  EXPECT_EQ(state.transposed.unsafeGetTensorImpl(), identity);
  EXPECT_EQ(state.transposed.strides().vec(), strides);
  // 2040, 288, 10, 8 and 1600 bytes, each from a multiple of 512 on.
  EXPECT_EQ(arena->bytes(), 2048 + 512 + 512 + 512 + 2048);
  EXPECT_EQ(arena->image_bytes(), arena->bytes() + 512);
  const auto* begin = static_cast<const char*>(state.weight.const_data_ptr());
  EXPECT_EQ(static_cast<const char*>(state.transposed.const_data_ptr()) - begin, 2048);
  EXPECT_EQ(static_cast<const char*>(state.inner.storage().data()) - begin, 2048 + 3 * 512);
  state.weight.index({3}).fill_(5.0);
  state.weight.select(0, 3).fill_(5.0);
  EXPECT_TRUE(state.row.eq(5.0).all().item<bool>());  // still shared
}

TEST_F(StateArenaTest, LeavesAndComesBackAtTheSameAddress) {
  const State state;
  const auto arena = pack(state);
  const void* address = state.weight.const_data_ptr();
  for (int round = 0; round < 3; ++round) {
    const Bytes before = memory_use(c10::kCPU)->allocated;
    const auto freed = arena->leave();
    ASSERT_TRUE(freed.ok()) << freed.error().message;
    EXPECT_EQ(*freed, arena->bytes());
    EXPECT_EQ(before - memory_use(c10::kCPU)->allocated, arena->bytes());
    EXPECT_TRUE(arena->away());
    EXPECT_EQ(*arena->leave(), 0);
    if (refuses_access()) {
      EXPECT_ANY_THROW(state.weight.add(1));
    }  // refused, and nothing crashes
    if (refuses_access()) {
      EXPECT_ANY_THROW(state.row.fill_(1));
    }
    ASSERT_TRUE(arena->come_back().ok());
    ASSERT_TRUE(arena->come_back().ok());
    EXPECT_EQ(state.weight.const_data_ptr(), address);
    state.expect_unchanged();
  }
  EXPECT_GT(arena->last_seconds().copy, 0);
}

TEST_F(StateArenaTest, WhereThereIsNoRoomTheStateStaysAwayAndWhole) {
  device_ = make_cpu_device({.arena_bytes = 9'000});
  const State state;
  const auto arena = pack(state);
  ASSERT_TRUE(arena->leave().ok());
  {
    const MemoryBlock other = *device_->allocate_arena(8'000);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(arena->come_back().error().code, ErrorCode::kLimit);
    EXPECT_TRUE(arena->away());
  }
  ASSERT_TRUE(arena->come_back().ok());
  state.expect_unchanged();
  EXPECT_EQ(StateArena::pack(State().tensors(), {}, device_).error().code, ErrorCode::kLimit);
}

TEST_F(StateArenaTest, MovesToAnotherDevicePresentOrAway) {
  const State state;
  auto arena = pack(state);
  const auto small = make_cpu_device({.arena_bytes = 100});
  for (const bool away : {false, true}) {
    if (away) {
      ASSERT_TRUE(arena->leave().ok());
    }
    EXPECT_EQ(arena->move_to(small).error().code, ErrorCode::kLimit);
    EXPECT_EQ(arena->device(), device_);
    const auto other = make_cpu_device();
    ASSERT_TRUE(arena->move_to(other).ok());
    EXPECT_EQ(arena->device(), other);
    EXPECT_FALSE(arena->away());
    state.expect_unchanged();
    EXPECT_EQ(state.row.storage().unsafeGetStorageImpl(),
              state.weight.storage().unsafeGetStorageImpl());
    ASSERT_TRUE(arena->move_to(device_).ok());
  }
  state.expect_unchanged();
}

TEST_F(StateArenaTest, AParameterThatMovesStaysALeafThatTrains) {
  const at::Tensor parameter = at::randn({3}).set_requires_grad(true);
  auto arena = *StateArena::pack({parameter}, {}, device_);
  ASSERT_TRUE(arena->move_to(make_cpu_device()).ok());
  EXPECT_TRUE(parameter.requires_grad());
  EXPECT_TRUE(parameter.is_leaf());
  parameter.mul(2).sum().backward();
  EXPECT_TRUE(parameter.grad().equal(at::full({3}, 2.0)));
}

TEST_F(StateArenaTest, AnImageGoesToAnotherState) {
  const State from;
  const auto arena = pack(from);
  State to;
  for (const at::Tensor& tensor : to.tensors()) tensor.zero_();
  to.step.zero_();
  const auto other = pack(to);
  for (const bool away : {false, true}) {
    if (away) {
      ASSERT_TRUE(arena->leave().ok());
    }
    const auto image = arena->image();
    ASSERT_TRUE(image.ok());
    ASSERT_EQ(static_cast<Bytes>(image->size()), arena->image_bytes());
    if (away) {
      ASSERT_TRUE(other->leave().ok());
    }
    const auto room = other->image_room();
    ASSERT_EQ(room->size(), image->size());
    std::memcpy(room->data(), image->data(), image->size());
    ASSERT_TRUE(other->take_image().ok());
    ASSERT_TRUE(other->come_back().ok());
    to.expect_unchanged();
    for (const at::Tensor& tensor : to.tensors()) tensor.zero_();
    to.step.zero_();
  }
}

TEST_F(StateArenaTest, AdoptsWhatReplacedItsTensors) {
  State state;
  const auto arena = pack(state);
  const at::Tensor kept = state.half;  // a caller still uses the one that was replaced
  state.half = at::ones({5}, at::kHalf);
  state.transposed = at::randn({8, 9}).t();
  const at::Tensor expected = state.transposed.clone();
  const void* address = state.weight.const_data_ptr();
  ASSERT_TRUE(*arena->adopt(state.tensors(), {state.step}));
  EXPECT_TRUE(kept.equal(state.copies[2]));
  EXPECT_TRUE(state.transposed.equal(expected));
  EXPECT_EQ(state.weight.const_data_ptr(), address);
  EXPECT_EQ(
      static_cast<const char*>(state.half.const_data_ptr()) - static_cast<const char*>(address),
      2048 + 512);
  ASSERT_TRUE(arena->leave().ok());
  ASSERT_TRUE(kept.equal(state.copies[2]));
  if (refuses_access()) {
    EXPECT_ANY_THROW(state.half.add(1));
  }
  EXPECT_THAT(arena->adopt(state.tensors(), {}).error().message, HasSubstr("is away"));
  ASSERT_TRUE(arena->come_back().ok());
  EXPECT_TRUE(state.half.eq(1).all().item<bool>());
  // Other sizes, other numbers, other orders do not fit in.
  EXPECT_FALSE(*arena->adopt({state.weight}, {}));
  State larger = state;
  larger.half = at::ones({600}, at::kHalf);
  EXPECT_FALSE(*arena->adopt(larger.tensors(), {}));
  std::vector<at::Tensor> one{at::randn({7}), at::randn({7})};
  auto pair = *StateArena::pack(one, {}, device_);
  EXPECT_FALSE(*pair->adopt({one[1], one[0]}, {}));
}

TEST_F(StateArenaTest, AStorageThatHasOtherMemoryNowIsNotLost) {
  const State state;
  const auto arena = pack(state);
  state.half.set_(at::ones({5}, at::kHalf).storage(), 0, {5}, {1});
  ASSERT_TRUE(arena->leave().ok());  // the old storage leaves; the tensor has gone its own way
  EXPECT_TRUE(state.half.eq(1).all().item<bool>());
  ASSERT_TRUE(arena->come_back().ok());
  state.weight.resize_({100, 100});
  EXPECT_THAT(arena->leave().error().message, HasSubstr("storage 0 of the state has other memory"));
  EXPECT_FALSE(arena->away());
}

TEST_F(StateArenaTest, TensorsKeepTheArenaAlive) {
  const State state;
  { const auto arena = pack(state); }
  state.expect_unchanged();
  const Bytes before = memory_use(c10::kCPU)->allocated;
  {
    const at::Tensor lonely = at::ones({1000});
    const auto arena = *StateArena::pack({lonely}, {}, device_);
  }
  EXPECT_EQ(memory_use(c10::kCPU)->allocated, before);
}

TEST_F(StateArenaTest, WhatIsNoStateIsRefused) {
  EXPECT_THAT(StateArena::pack({at::Tensor()}, {}, device_).error().message,
              HasSubstr("tensor 0 of the state has no memory"));
  EXPECT_THAT(StateArena::pack({at::ones({3}).to_sparse()}, {}, device_).error().message,
              HasSubstr("expected a dense tensor"));
  EXPECT_THAT(
      StateArena::pack({at::ones({3}), at::empty({3}, at::kMeta)}, {}, device_).error().message,
      HasSubstr("tensor 1 of the state is on meta, expected cpu"));
  const State state;
  const auto arena = pack(state);
  ASSERT_TRUE(arena->leave().ok());
  EXPECT_THAT(StateArena::pack(state.tensors(), {}, device_).error().message,
              HasSubstr("expected state that is not away already"));
  const auto nothing = StateArena::pack({}, {}, device_);
  ASSERT_TRUE(nothing.ok());
  EXPECT_TRUE((*nothing)->leave().ok());
  EXPECT_TRUE((*nothing)->come_back().ok());
}

}  // namespace
}  // namespace regen::execute
