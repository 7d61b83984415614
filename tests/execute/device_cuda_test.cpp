// The CUDA device and placement there; skipped where torch sees no GPU. What the CPU tests hold
// is held here again where CUDA does it in its own way.
#ifdef REGEN_WITH_CUDA

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <thread>

#include "regen/execute/device/device.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/placement/placement.h"

namespace regen::execute {
namespace {

constexpr Bytes k256MiB = Bytes{256} << 20;

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "torch sees no GPU";
    device_ = open_device("cuda").value();
  }
  c10::Device where() const { return device_->torch_device(); }
  at::Tensor bytes(int64_t count) const {
    return at::empty({count}, at::TensorOptions().dtype(at::kByte).device(where()));
  }
  at::Tensor view(const MemoryBlock& block, c10::Device device) const {
    return at::from_blob(block.data(), {block.bytes()},
                         at::TensorOptions().dtype(at::kByte).device(device));
  }

  std::shared_ptr<ExecutionDevice> device_;
};

TEST_F(Cuda, IsNamedSharedAndAligned) {
  EXPECT_EQ(device_, open_device("cuda:0").value());
  EXPECT_FALSE(device_->name().empty());
  EXPECT_EQ(device_->alignment(), 512);
  EXPECT_EQ(device_->allocate_arena(1000).value().bytes(), 1024);
  EXPECT_FALSE(open_device("cuda:100").ok());
  const auto memory = device_->memory().value();
  EXPECT_GE(memory.total, memory.free);
}

TEST_F(Cuda, AnArenaThatDoesNotFitIsRefusedAndNothingIsBroken) {
  const auto refused = device_->allocate_arena(device_->memory().value().total * 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("are free"));
  EXPECT_TRUE(device_->allocate_arena(1 << 20).ok());
  device_->synchronize();
}

// The copy out waits for the kernel, the kernel that overwrites for the copy, and so on round.
TEST_F(Cuda, CopiesAndKernelsAreOrderedByEvents) {
  const auto arena = device_->allocate_arena(k256MiB).value();
  const auto host = device_->allocate_host(k256MiB).value();
  const auto on_device = view(arena, where());
  const auto on_host = view(host, c10::kCPU);
  for (int round = 1; round < 20; ++round) {
    on_device.fill_(round);
    device_->wait(Queue::kToHost, device_->record(Queue::kCompute));
    device_->copy(Queue::kToHost, host.data(), arena.data(), k256MiB);
    device_->wait(Queue::kCompute, device_->record(Queue::kToHost));
    on_device.fill_(0);
    device_->wait(Queue::kToDevice, device_->record(Queue::kCompute));
    device_->wait(Queue::kToDevice, device_->record(Queue::kToHost));
    device_->copy(Queue::kToDevice, arena.data(), host.data(), k256MiB);
    const Event fetched = device_->record(Queue::kToDevice);
    device_->wait(Queue::kCompute, fetched);
    ASSERT_TRUE(on_device.eq(round).all().item<bool>()) << "round " << round;
    EXPECT_TRUE(device_->done(fetched));
    ASSERT_TRUE(on_host.eq(round).all().item<bool>());
  }
}

TEST_F(Cuda, ManyEventsAreKeptApart) {
  const auto arena = device_->allocate_arena(k256MiB).value();
  const auto host = device_->allocate_host(k256MiB).value();
  std::vector<Event> events;
  for (int i = 0; i < 1000; ++i) {
    device_->copy(Queue::kToHost, host.data(), arena.data(), 1 << 20);
    events.push_back(device_->record(Queue::kToHost));
  }
  device_->copy(Queue::kToHost, host.data(), arena.data(), k256MiB);
  const Event last = device_->record(Queue::kToHost);
  device_->wait(Queue::kCompute, events.front());
  device_->wait(Queue::kCompute, last);
  device_->synchronize();
  EXPECT_TRUE(device_->done(last));
  for (const Event& event : events) EXPECT_TRUE(device_->done(event));
  EXPECT_TRUE(device_->done({}));
}

TEST_F(Cuda, CopiesHaveTimes) {
  const auto arena = device_->allocate_arena(k256MiB).value();
  const auto host = device_->allocate_host(k256MiB).value();
  const Event begin = device_->record_timed(Queue::kToDevice);
  device_->copy(Queue::kToDevice, arena.data(), host.data(), k256MiB);
  const Event end = device_->record_timed(Queue::kToDevice);
  device_->synchronize();
  const double seconds = device_->seconds_between(begin, end);
  EXPECT_GT(seconds, 0);
  RecordProperty("to_device_GB_per_second", std::to_string(1e-9 * k256MiB / seconds));
  device_->forget_timed();
  EXPECT_THROW(device_->seconds_between(begin, end), c10::Error);
}

TEST_F(Cuda, RunIsOneThreadWithTheCallersStream) {
  std::thread::id first;
  device_->run([&] { first = std::this_thread::get_id(); });
  const auto stream = c10::cuda::getStreamFromPool(false, where().index());
  std::thread([&] {
    const c10::cuda::CUDAStreamGuard guard(stream);
    device_->run([&] {
      EXPECT_EQ(std::this_thread::get_id(), first);
      EXPECT_EQ(c10::cuda::getCurrentCUDAStream(where().index()), stream);
    });
  }).join();
  EXPECT_NE(first, std::this_thread::get_id());
  EXPECT_THROW(device_->run([] { throw std::out_of_range("x"); }), std::out_of_range);
}

TEST_F(Cuda, AllocationsAreServedAndTheRestIsPassedOn) {
  const auto arena = device_->allocate_arena(4096).value();
  Reserve reserve(arena.at(2048), 2048, 512);
  const std::array<PlacedSlot, 1> slots{{{100, arena.at(512)}}};
  const auto* const plain = c10::cuda::CUDACachingAllocator::get();
  {
    auto scope = PlacementScope::enter(where(), reserve).value();
    scope.serve(slots, "op");
    const auto placed = bytes(100);
    const auto extra = bytes(200);
    at::Tensor other;
    std::thread([&] { other = bytes(100); }).join();
    EXPECT_EQ(placed.storage().data(), arena.at(512));
    EXPECT_EQ(extra.storage().data(), arena.at(2048));
    EXPECT_EQ(placed.device(), where());
    EXPECT_EQ(bytes(0).storage().data(), nullptr);
    EXPECT_THROW(bytes(4096), c10::OutOfMemoryError);
    placed.record_stream(c10::cuda::getStreamFromPool(false, where().index()));
    EXPECT_EQ(scope.finish(), 0u);
    EXPECT_NE(other.storage().data(), arena.at(512));
    EXPECT_EQ(scope.deviations().at(0).unforeseen, 1u);
  }
  EXPECT_EQ(c10::cuda::CUDACachingAllocator::get(), plain);
  EXPECT_EQ(reserve.live_blocks(), 0u);
}

TEST_F(Cuda, BareAddressesAreServedAndFreed) {
  namespace caching = c10::cuda::CUDACachingAllocator;
  const auto arena = device_->allocate_arena(4096).value();
  Reserve reserve(arena.at(2048), 2048, 512);
  const std::array<PlacedSlot, 1> slots{{{100, arena.at(512)}}};
  void* before = caching::raw_alloc(100);
  auto scope = PlacementScope::enter(where(), reserve).value();
  scope.serve(slots, "op");
  void* placed = caching::raw_alloc(100);
  void* extra = caching::raw_alloc(100);
  EXPECT_EQ(placed, arena.at(512));
  EXPECT_EQ(extra, arena.at(2048));
  caching::raw_delete(extra);
  EXPECT_EQ(scope.finish(), 0u);
  caching::raw_delete(placed);
  caching::raw_delete(before);
  EXPECT_EQ(reserve.live_blocks(), 0u);
}

TEST_F(Cuda, MemoryInUseIsSeenByTorchAndByTheDriver) {
  const auto before = memory_use(where()).value();
  const auto tensor = bytes(k256MiB);
  const auto arena = device_->allocate_arena(k256MiB).value();
  const auto after = memory_use(where()).value();
  EXPECT_GE(after.allocated - before.allocated, k256MiB);
  EXPECT_LT(after.allocated - before.allocated, 2 * k256MiB);
  EXPECT_GE(after.driver - before.driver, k256MiB);
  EXPECT_TRUE(reset_memory_peak(where()).ok());
}

}  // namespace
}  // namespace regen::execute

#endif
