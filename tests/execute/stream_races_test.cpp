// The three races between kernels and copies, each provoked when its wait is left out and absent
// when it is there. The compute queue is asynchronous as on a GPU; a latch holds back whatever must
// be late, so that nothing depends on speed.
#include <gtest/gtest.h>

#include <latch>
#include <string>
#include <thread>

#include "regen/execute/device/cpu/device_cpu.h"

namespace regen::execute {
namespace {

class StreamRaces : public ::testing::TestWithParam<bool> {
 protected:
  bool guarded() const { return GetParam(); }
  void set(std::string& buffer, const std::string& text) { buffer.replace(0, text.size(), text); }
  void copy(Queue queue, std::string& to, const std::string& from) {
    device_->copy(queue, to.data(), from.data(), static_cast<Bytes>(from.size()));
  }
  void order(Queue later, Queue earlier) {
    if (guarded()) device_->wait(later, device_->record(earlier));
  }
  // Lets the held-back work go; without a guard only after `other` has overtaken it.
  void let_go(Queue other) {
    const Event end = device_->record(other);
    if (guarded()) {
      EXPECT_FALSE(device_->done(end));
    } else {
      while (!device_->done(end)) std::this_thread::yield();
    }
    late_.count_down();
    device_->synchronize();
  }

  std::latch late_{1};
  std::string tensor_ = "old content";
  std::string host_ = "...........";
  std::shared_ptr<CpuDevice> device_ = make_cpu_device({.asynchronous_compute = true});
};

// Kernel writes the tensor; offload.
TEST_P(StreamRaces, AnOffloadWaitsForTheProducer) {
  device_->post(Queue::kCompute, [&] {
    late_.wait();
    set(tensor_, "new content");
  });
  order(Queue::kToHost, Queue::kCompute);
  copy(Queue::kToHost, host_, tensor_);
  let_go(Queue::kToHost);
  EXPECT_EQ(host_, guarded() ? "new content" : "old content");
}

// Offload; the memory is used for the next tensor.
TEST_P(StreamRaces, TheNextWriterWaitsForTheOffload) {
  device_->post(Queue::kToHost, [&] { late_.wait(); });
  copy(Queue::kToHost, host_, tensor_);
  order(Queue::kCompute, Queue::kToHost);
  device_->post(Queue::kCompute, [&] { set(tensor_, "next tensor"); });
  let_go(Queue::kCompute);
  EXPECT_EQ(host_, guarded() ? "old content" : "next tensor");
}

// Kernel reads a tensor that dies; another one is fetched to its address.
TEST_P(StreamRaces, AFetchWaitsForTheLastReader) {
  std::string seen;
  const std::string fetched = "fetched one";
  device_->post(Queue::kCompute, [&] {
    late_.wait();
    seen = tensor_;
  });
  order(Queue::kToDevice, Queue::kCompute);
  copy(Queue::kToDevice, tensor_, fetched);
  let_go(Queue::kToDevice);
  EXPECT_EQ(seen, guarded() ? "old content" : "fetched one");
  EXPECT_EQ(tensor_, "fetched one");
}

// The same with an offload as the last reader, which needs no kernel at all.
TEST_P(StreamRaces, AFetchWaitsForTheOffloadBeforeIt) {
  const std::string fetched = "fetched one";
  device_->post(Queue::kToHost, [&] { late_.wait(); });
  copy(Queue::kToHost, host_, tensor_);
  order(Queue::kToDevice, Queue::kToHost);
  copy(Queue::kToDevice, tensor_, fetched);
  let_go(Queue::kToDevice);
  EXPECT_EQ(host_, guarded() ? "old content" : "fetched one");
}

INSTANTIATE_TEST_SUITE_P(Guards, StreamRaces, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "there" : "left_out"; });

// On the plain CPU device, where operators run on the caller's thread, a slow copy is overtaken in
// the same way: half of it is gone when the caller writes.
TEST(SlowCopies, AreOvertakenWithoutTheirWait) {
  constexpr std::size_t kSize = std::size_t{1} << 20;
  for (const bool guarded : {false, true}) {
    const auto device = make_cpu_device({.copy_bytes_per_second = 2e7});  // 50 ms
    std::string tensor(kSize, 'a');
    std::string host(kSize, '.');
    device->copy(Queue::kToHost, host.data(), tensor.data(), kSize);
    if (guarded) device->wait(Queue::kCompute, device->record(Queue::kToHost));
    tensor.assign(kSize, 'b');
    device->synchronize();
    EXPECT_EQ(host.back(), guarded ? 'a' : 'b');
  }
}

}  // namespace
}  // namespace regen::execute
