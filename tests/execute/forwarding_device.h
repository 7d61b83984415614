// A device that hands every call to another one: doubles change what they are about.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "regen/execute/device/device.h"

namespace regen::execute {

class ForwardingDevice : public ExecutionDevice {
 public:
  explicit ForwardingDevice(std::shared_ptr<ExecutionDevice> inner) : inner_(std::move(inner)) {}

  c10::Device torch_device() const override { return inner_->torch_device(); }
  const std::string& name() const override { return inner_->name(); }
  Bytes alignment() const override { return inner_->alignment(); }
  Result<DeviceMemory> memory() override { return inner_->memory(); }
  Result<MemoryBlock> allocate_arena(Bytes bytes, ArenaKind kind) override {
    return inner_->allocate_arena(bytes, kind);
  }
  Result<MemoryBlock> allocate_host(Bytes bytes) override { return inner_->allocate_host(bytes); }
  void copy(Queue queue, void* to, const void* from, Bytes bytes) override {
    inner_->copy(queue, to, from, bytes);
  }
  Event record(Queue queue) override { return inner_->record(queue); }
  void wait(Queue waiter, const Event& event) override { inner_->wait(waiter, event); }
  bool done(const Event& event) override { return inner_->done(event); }
  bool await(const Event& event, double expected_seconds, const Gate* gate) override {
    return inner_->await(event, expected_seconds, gate);
  }
  void synchronize() override { inner_->synchronize(); }
  void finish() override { inner_->finish(); }
  void hold_compute(double seconds) override { inner_->hold_compute(seconds); }
  Event record_timed(Queue queue) override { return inner_->record_timed(queue); }
  double seconds_between(const Event& begin, const Event& end) override {
    return inner_->seconds_between(begin, end);
  }
  void forget_timed() override { inner_->forget_timed(); }
  void run(const std::function<void()>& work) override { inner_->run(work); }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) override {
    return inner_->capture(work);
  }
  std::unique_ptr<StreamScope> own_stream() override { return inner_->own_stream(); }
  void run_aside(const std::function<void()>& work) override { inner_->run_aside(work); }
  void note_choices() override { inner_->note_choices(); }
  void forget_choices() override { inner_->forget_choices(); }

 protected:
  ExecutionDevice& inner() const { return *inner_; }

 private:
  std::shared_ptr<ExecutionDevice> inner_;
};

}  // namespace regen::execute
