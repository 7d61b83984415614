#include "regen/execute/device/memory_meter.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <thread>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/placement/placement.h"

namespace regen::execute {
namespace {

at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::kByte);
}
MemoryUse use() {
  return memory_use(c10::kCPU).value();
}

class Meter : public ::testing::Test {
 protected:
  Meter() {
    EXPECT_TRUE(install_memory_meter().ok());
    EXPECT_TRUE(reset_memory_peak(c10::kCPU).ok());
    before_ = use().allocated;
  }
  ~Meter() override { EXPECT_TRUE(remove_memory_meter().ok()); }
  Bytes now() const { return use().allocated - before_; }
  Bytes peak() const { return use().allocated_peak - before_; }

  Bytes before_ = 0;
};

TEST_F(Meter, CountsEveryThread) {
  auto a = bytes(1000);
  at::Tensor b;
  std::thread([&] { b = bytes(500); }).join();
  EXPECT_EQ(now(), 1500);
  std::thread([&] { a.reset(); }).join();
  EXPECT_EQ(now(), 500);
  EXPECT_EQ(peak(), 1500);
  ASSERT_TRUE(reset_memory_peak(c10::kCPU).ok());
  EXPECT_EQ(peak(), 500);
  b.reset();
  EXPECT_EQ(now(), 0);
}

TEST_F(Meter, CountsArenasAndNotWhatLiesInThem) {
  const auto device = make_cpu_device();
  auto arena = device->allocate_arena(4096).value();
  const auto host = device->allocate_host(4096).value();
  EXPECT_EQ(now(), 4096);
  {
    Reserve reserve(arena.at(2048), 2048, 64);
    const PlacedSlot slot{100, arena.data()};
    auto scope = PlacementScope::enter(c10::kCPU, reserve).value();
    EXPECT_FALSE(remove_memory_meter().ok());
    scope.serve({&slot, 1}, "op");
    const auto placed = bytes(100);
    const auto extra = bytes(100);
    scope.finish();
    EXPECT_EQ(now(), 4096);
    EXPECT_EQ(bytes(50).nbytes(), 50u);  // passed on
  }
  EXPECT_EQ(peak(), 4096 + 50);
  arena = {};
  EXPECT_EQ(now(), 0);
}

TEST_F(Meter, CountsRecordedAllocations) {
  at::Tensor kept;
  {
    auto scope = RecordingScope::enter(c10::kCPU).value();
    scope.start();
    kept = bytes(100);
    bytes(200);
    EXPECT_EQ(scope.stop().size(), 2u);
  }
  EXPECT_EQ(now(), 100);
  EXPECT_EQ(peak(), 300);
  kept.reset();
  EXPECT_EQ(now(), 0);
}

TEST(MeterOff, CountsNothingNewAndForgetsNothingOld) {
  ASSERT_TRUE(install_memory_meter().ok());
  ASSERT_TRUE(install_memory_meter().ok());
  const Bytes before = use().allocated;
  auto a = bytes(100);
  ASSERT_TRUE(remove_memory_meter().ok());
  const auto b = bytes(1000);
  EXPECT_EQ(use().allocated - before, 100);
  a.reset();
  EXPECT_EQ(use().allocated - before, 0);
}

TEST(MeterOff, IsNotInstalledInsideAScope) {
  auto scope = RecordingScope::enter(c10::kCPU).value();
  const auto status = install_memory_meter();
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("install it before"), std::string::npos);
}

}  // namespace
}  // namespace regen::execute
