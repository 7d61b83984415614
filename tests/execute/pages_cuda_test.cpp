// Memory that leaves on a GPU: pages that go and come at one address, and state in such an arena.
// Skipped where torch sees no GPU.
#ifdef REGEN_WITH_CUDA

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "regen/execute/device/device.h"
#include "regen/execute/placement/packed_copy.h"
#include "regen/execute/placement/state_arena.h"
#include "regen/execute/placement/storage_memory.h"

namespace regen::execute {
namespace {

constexpr Bytes kPage = Bytes{2} << 20;
constexpr Bytes k512MiB = Bytes{512} << 20;

class CudaPages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "torch sees no GPU";
    device_ = open_device("cuda").value();
    c10::cuda::CUDACachingAllocator::emptyCache();
  }
  Bytes free() const { return device_->memory().value().free; }
  at::Tensor bytes_of(const MemoryBlock& block) const {
    return at::from_blob(block.data(), {block.bytes()},
                         at::TensorOptions().dtype(at::kByte).device(device_->torch_device()));
  }

  std::shared_ptr<ExecutionDevice> device_;
};

TEST_F(CudaPages, HasEveryByteThatItTakesAndGivesAllBack) {
  const Bytes before = free();
  MemoryBlock arena = device_->allocate_arena(k512MiB + 1, ArenaKind::kReleasable).value();
  EXPECT_EQ(arena.bytes(), k512MiB + kPage);
  EXPECT_EQ(before - free(), arena.bytes());
  bytes_of(arena).fill_(7);
  device_->synchronize();
  ASSERT_TRUE(arena.release_pages().ok());
  EXPECT_EQ(free(), before);
  void* const address = arena.data();
  ASSERT_TRUE(arena.take_pages().ok());
  EXPECT_EQ(arena.data(), address);
  EXPECT_EQ(before - free(), arena.bytes());
  bytes_of(arena).fill_(9);
  EXPECT_TRUE(bytes_of(arena).eq(9).all().item<bool>());
  arena = MemoryBlock();
  c10::cuda::CUDACachingAllocator::emptyCache();  // of the comparison
  EXPECT_EQ(free(), before);
}

TEST_F(CudaPages, ContentsTravelToTheHostAndBack) {
  MemoryBlock arena = device_->allocate_arena(k512MiB, ArenaKind::kReleasable).value();
  const MemoryBlock host = device_->allocate_host(k512MiB).value();
  const at::Tensor numbers =
      at::arange(k512MiB, at::TensorOptions().dtype(at::kLong).device(at::kCUDA)).to(at::kByte);
  bytes_of(arena).copy_(numbers);
  device_->synchronize();
  const std::vector<MemoryRange> ranges{{1000, k512MiB / 2},
                                        {k512MiB / 2 + 5000, k512MiB / 2 - 5000}};
  pack_to_host(*device_, arena, ranges, host.data());
  device_->synchronize();
  ASSERT_TRUE(arena.release_pages().ok());
  ASSERT_TRUE(arena.take_pages().ok());
  bytes_of(arena).fill_(0);
  device_->synchronize();
  unpack_to_device(*device_, arena, ranges, host.data());
  device_->synchronize();
  for (const MemoryRange& range : ranges) {
    EXPECT_TRUE(bytes_of(arena)
                    .narrow(0, range.offset, range.bytes)
                    .equal(numbers.narrow(0, range.offset, range.bytes)));
  }
}

TEST_F(CudaPages, WhatDoesNotFitIsRefusedAndCanBeAskedForAgain) {
  const auto refused =
      device_->allocate_arena(device_->memory().value().total * 2, ArenaKind::kReleasable);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("are free"));
  const Bytes half = free() / 2 / kPage * kPage;
  MemoryBlock first = device_->allocate_arena(half, ArenaKind::kReleasable).value();
  ASSERT_TRUE(first.release_pages().ok());
  {
    const MemoryBlock second = device_->allocate_arena(half + half / 2).value();
    EXPECT_EQ(first.take_pages().error().code, ErrorCode::kLimit);
    EXPECT_FALSE(first.present());
  }
  EXPECT_TRUE(first.take_pages().ok());
  EXPECT_FALSE(device_->allocate_arena(4096).value().release_pages().ok());
}

TEST_F(CudaPages, StateLeavesAndComesBack) {
  std::vector<at::Tensor> state;
  for (int i = 0; i < 20; ++i) state.push_back(at::randn({1000 + i, 300}, at::kCUDA));
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : state) copies.push_back(tensor.cpu());
  auto arena = StateArena::pack(state, {}, device_).value();
  c10::cuda::CUDACachingAllocator::emptyCache();
  const Bytes present = free();
  EXPECT_EQ(StateArena::bytes_on(device_->torch_device()), arena->bytes());
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(arena->leave().ok());
    EXPECT_EQ(free() - present, arena->bytes());
    EXPECT_EQ(StateArena::bytes_on(device_->torch_device()), 0);
    if (refuses_access()) {
      EXPECT_ANY_THROW(state[0].add(1));
    }
    ASSERT_TRUE(arena->come_back().ok());
    EXPECT_EQ(free(), present);
    for (std::size_t i = 0; i < state.size(); ++i)
      EXPECT_TRUE(state[i].cpu().equal(copies[i])) << i;
  }
  ASSERT_TRUE(arena->move_to(open_device("cpu").value()).ok());
  EXPECT_TRUE(state[3].is_cpu());
  EXPECT_TRUE(state[3].equal(copies[3]));
  ASSERT_TRUE(arena->move_to(device_).ok());
  EXPECT_TRUE(state[3].is_cuda());
  for (std::size_t i = 0; i < state.size(); ++i) EXPECT_TRUE(state[i].cpu().equal(copies[i])) << i;
}

}  // namespace
}  // namespace regen::execute

#endif
