// Queues, events and memory of the CPU device.
#include "regen/execute/device/device.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "regen/execute/device/cpu/device_cpu.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

TEST(OpenDevice, SharesTheCpu) {
  const auto a = open_device("cpu");
  const auto b = open_device("cpu");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(*a, *b);
  EXPECT_EQ((*a)->torch_device(), c10::Device(c10::kCPU));
  EXPECT_FALSE((*a)->name().empty());
  const auto memory = (*a)->memory();
  ASSERT_TRUE(memory.ok());
  EXPECT_GT(memory->free, 0);
  EXPECT_GE(memory->total, memory->free);
}

TEST(OpenDevice, NamesWhatIsWrong) {
  for (const char* name : {"", "gpu", "cuda:", "cuda:x", "cuda:-1", "cuda1", "cuda:999", "cpu:0"}) {
    const auto device = open_device(name);
    ASSERT_FALSE(device.ok()) << name;
    EXPECT_THAT(device.error().message, HasSubstr("'" + std::string(name) + "': expected cpu"));
  }
}

#ifndef REGEN_WITH_CUDA
TEST(OpenDevice, SaysThatThereIsNoCuda) {
  const auto device = open_device("cuda:1");
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.error().code, ErrorCode::kMissing);
  EXPECT_THAT(device.error().message, HasSubstr("has no CUDA"));
}
#endif

TEST(CpuDevice, GivesAlignedMemoryOfTheRightSize) {
  const auto device = make_cpu_device();
  auto arena = device->allocate_arena(1000).value();
  EXPECT_EQ(arena.bytes(), 1024);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.data()) % 64, 0u);
  const auto host = device->allocate_host(1000).value();
  EXPECT_EQ(host.bytes(), 1000);
  EXPECT_EQ(device->allocate_host(0).value().bytes(), 0);
  EXPECT_GT(device->allocate_arena(0).value().bytes(), 0);

  MemoryBlock other = std::move(arena);
  EXPECT_EQ(arena.data(), nullptr);  // NOLINT: moved from is empty
  std::memset(other.data(), 1, 1024);
  other = MemoryBlock();
}

TEST(CpuDevice, RefusesMemoryThatCannotBe) {
  const auto device = make_cpu_device();
  const auto huge = device->allocate_arena(kMaxBytes);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::kLimit);
  EXPECT_THAT(huge.error().message, HasSubstr("arena of 8.00 PiB"));
  EXPECT_EQ(device->allocate_arena(-1).error().code, ErrorCode::kBadInput);
  EXPECT_EQ(device->allocate_host(-1).error().code, ErrorCode::kBadInput);
}

TEST(CpuDevice, CopiesOfAQueueRunInOrder) {
  const auto device = make_cpu_device();
  std::vector<int> chain(100, 0);
  chain[0] = 7;
  for (std::size_t i = 1; i < chain.size(); ++i)
    device->copy(Queue::kToHost, &chain[i], &chain[i - 1], sizeof(int));
  const Event end = device->record(Queue::kToHost);
  device->wait(Queue::kCompute, end);
  EXPECT_TRUE(device->done(end));
  EXPECT_EQ(chain.back(), 7);
}

TEST(CpuDevice, ADefaultEventIsDone) {
  const auto device = make_cpu_device();
  EXPECT_TRUE(device->done({}));
  device->wait(Queue::kToHost, {});
  device->wait(Queue::kCompute, device->record(Queue::kCompute));
  device->synchronize();
}

// The two directions and the caller get on without each other: each waits for what only the
// others can do.
TEST(CpuDevice, QueuesOverlap) {
  const auto device = make_cpu_device();
  std::latch all(3);
  device->post(Queue::kToHost, [&] { all.arrive_and_wait(); });
  device->post(Queue::kToDevice, [&] { all.arrive_and_wait(); });
  const Event to_host = device->record(Queue::kToHost);
  EXPECT_FALSE(device->done(to_host));
  all.arrive_and_wait();
  device->synchronize();
  EXPECT_TRUE(device->done(to_host));
}

TEST(CpuDevice, AQueueWaitsForAnEventOfAnother) {
  const auto device = make_cpu_device();
  std::latch go(1);
  int value = 1;
  int seen = 0;
  device->post(Queue::kToHost, [&] {
    go.wait();
    value = 2;
  });
  device->wait(Queue::kToDevice, device->record(Queue::kToHost));
  device->copy(Queue::kToDevice, &seen, &value, sizeof(int));
  const Event end = device->record(Queue::kToDevice);
  EXPECT_FALSE(device->done(end));
  go.count_down();
  device->wait(Queue::kCompute, end);
  EXPECT_EQ(seen, 2);
}

TEST(CpuDevice, AnEventCoversOnlyWhatWasEnqueuedBefore) {
  const auto device = make_cpu_device();
  std::latch go(1);
  device->post(Queue::kToHost, [] {});
  const Event before = device->record(Queue::kToHost);
  device->post(Queue::kToHost, [&] { go.wait(); });
  device->wait(Queue::kCompute, before);
  EXPECT_TRUE(device->done(before));
  EXPECT_FALSE(device->done(device->record(Queue::kToHost)));
  go.count_down();
}

// 64 KiB at 6.4 MB/s take 10 ms at least, whatever else the machine does.
TEST(CpuDevice, CopiesCanBeSlowed) {
  const auto device = make_cpu_device({.copy_bytes_per_second = 6.4e6});
  std::vector<char> from(64000, 'x');
  std::vector<char> to(64000);
  const Event begin = device->record_timed(Queue::kToHost);
  device->copy(Queue::kToHost, to.data(), from.data(), 64000);
  const Event end = device->record_timed(Queue::kToHost);
  device->wait(Queue::kCompute, end);
  EXPECT_EQ(to, from);
  EXPECT_GE(device->seconds_between(begin, end), 0.01);
}

TEST(CpuDevice, TimesCanBeForgotten) {
  const auto device = make_cpu_device();
  const Event begin = device->record_timed(Queue::kCompute);
  const Event end = device->record_timed(Queue::kToDevice);
  device->synchronize();
  EXPECT_GE(device->seconds_between(begin, end), 0);
  EXPECT_THROW(device->seconds_between(begin, device->record(Queue::kCompute)), c10::Error);
  device->forget_timed();
  EXPECT_THROW(device->seconds_between(begin, end), c10::Error);
  EXPECT_EQ(device->record_timed(Queue::kCompute).mark, 1u);
}

TEST(CpuDevice, AnErrorInAQueueIsThrownByTheNextCall) {
  const auto device = make_cpu_device();
  int value = 1;
  int copy = 0;
  std::latch go(1);
  device->post(Queue::kToHost, [&] {
    go.wait();
    throw std::runtime_error("the link broke");
  });
  device->copy(Queue::kToHost, &copy, &value, sizeof(int));
  go.count_down();
  EXPECT_THROW(device->synchronize(), std::runtime_error);
  EXPECT_EQ(copy, 0) << "nothing happens behind an error";

  // Once it was seen, the device works again.
  device->copy(Queue::kToHost, &copy, &value, sizeof(int));
  device->synchronize();
  EXPECT_EQ(copy, 1);
}

TEST(CpuDevice, WaitingForAFailedQueueThrows) {
  const auto device = make_cpu_device();
  std::latch go(1);
  device->post(Queue::kToDevice, [&] {
    go.wait();
    throw std::runtime_error("the link broke");
  });
  const Event end = device->record(Queue::kToDevice);
  go.count_down();
  EXPECT_THROW(device->wait(Queue::kCompute, end), std::runtime_error);
}

TEST(CpuDevice, EndsWithWorkEnqueued) {
  std::vector<char> from(1 << 20, 'x');
  std::vector<char> to(1 << 20);
  std::vector<char> last(1 << 20);
  {
    const auto device = make_cpu_device({.copy_bytes_per_second = 1e8});
    device->copy(Queue::kToHost, to.data(), from.data(), 1 << 20);
    device->wait(Queue::kToDevice, device->record(Queue::kToHost));
    device->copy(Queue::kToDevice, last.data(), to.data(), 1 << 20);
  }
  EXPECT_EQ(last, from);
}

TEST(Run, IsThisThreadOnTheCpu) {
  const auto device = make_cpu_device();
  std::thread::id where;
  device->run([&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_THROW(device->run([] { throw std::out_of_range("x"); }), std::out_of_range);
}

// As on CUDA.
TEST(Run, IsAlwaysTheSameThreadOfAWorker) {
  const auto device = make_cpu_device({.run_on_worker = true});
  std::vector<std::thread::id> where;
  const auto note = [&] { where.push_back(std::this_thread::get_id()); };
  device->run(note);
  std::thread([&] { device->run(note); }).join();
  device->run([&] { device->run(note); });
  EXPECT_EQ(where[0], where[1]);
  EXPECT_EQ(where[0], where[2]);
  EXPECT_NE(where[0], std::this_thread::get_id());
}

thread_local int remembered = 0;  // as libraries do for each thread

TEST(Run, AsideIsAThreadThatRemembersNothing) {
  for (const bool worker : {false, true}) {
    const auto device = make_cpu_device({.run_on_worker = worker});
    int aside = -1;
    int after = -1;
    device->run([&] {
      remembered = 7;
      device->run_aside([&] {
        aside = remembered;
        remembered = 8;
      });
      after = remembered;
      remembered = 0;
    });
    EXPECT_EQ(aside, 0);
    EXPECT_EQ(after, 7);
    EXPECT_THROW(device->run_aside([] { throw std::out_of_range("x"); }), std::out_of_range);
  }
}

TEST(Run, ForgetsOnlyWhatWasNoted) {
  const auto device = make_cpu_device({.run_on_worker = true});
  const auto recall = [&] {
    int value = -1;
    device->run([&] { value = remembered; });
    return value;
  };
  device->run([] { remembered = 7; });
  device->forget_choices();
  EXPECT_EQ(recall(), 7);
  device->note_choices();
  EXPECT_EQ(recall(), 7);
  device->forget_choices();
  EXPECT_EQ(recall(), 0);
  device->run([&] { EXPECT_NO_THROW(device->run([] { remembered = 3; })); });
  EXPECT_EQ(recall(), 3);
}

TEST(Run, CarriesExceptionsAndTorchsStateAcross) {
  const auto device = make_cpu_device({.run_on_worker = true});
  EXPECT_THROW(device->run([] { throw std::out_of_range("x"); }), std::out_of_range);
  const auto grad_mode = [&] {
    bool enabled = false;
    device->run([&] { enabled = at::GradMode::is_enabled(); });
    return enabled;
  };
  EXPECT_TRUE(grad_mode());
  {
    const at::NoGradGuard guard;
    EXPECT_FALSE(grad_mode());
  }
  EXPECT_TRUE(grad_mode());
}

TEST(Run, CallersTakeTurns) {
  const auto device = make_cpu_device({.run_on_worker = true});
  int count = 0;  // no atomic: only one thread touches it
  std::vector<std::thread> callers;
  callers.reserve(4);
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int k = 0; k < 100; ++k) device->run([&] { ++count; });
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(count, 400);
}

}  // namespace
}  // namespace regen::execute
