// A device whose calls fail on demand: once, as when memory is short for a moment, or for
// ever from then on, as after an error inside CUDA.
#pragma once

#include <c10/util/Exception.h>

#include <memory>
#include <string>
#include <utility>

#include "forwarding_device.h"

namespace regen::execute {

enum class Failure : std::uint8_t { kOnce, kForEver };

class FailingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  // The call with this number fails, counted from now on, from 1; 0: none does.
  void fail_at(std::size_t call, Failure failure = Failure::kOnce) {
    counter_->calls = 0;
    counter_->fails_at = call;
    counter_->failure = failure;
  }
  // Since fail_at(), or since the device was made.
  std::size_t calls() const { return counter_->calls; }

  Result<DeviceMemory> memory() override {
    REGEN_TRY(counter_->count("memory"));
    return inner().memory();
  }
  Result<MemoryBlock> allocate_arena(Bytes bytes, ArenaKind kind) override {
    REGEN_TRY(counter_->count("allocate_arena"));
    REGEN_ASSIGN(MemoryBlock block, inner().allocate_arena(bytes, kind));
    if (kind == ArenaKind::kFixed) return block;
    void* const data = block.data();
    const Bytes taken = block.bytes();
    return MemoryBlock(data, taken, std::make_unique<FailingPages>(std::move(block), counter_));
  }
  Result<MemoryBlock> allocate_host(Bytes bytes) override {
    REGEN_TRY(counter_->count("allocate_host"));
    return inner().allocate_host(bytes);
  }
  void copy(Queue queue, void* to, const void* from, Bytes bytes) override {
    touch("copy");
    inner().copy(queue, to, from, bytes);
  }
  Event record(Queue queue) override {
    touch("record");
    return inner().record(queue);
  }
  void wait(Queue waiter, const Event& event) override {
    touch("wait");
    inner().wait(waiter, event);
  }
  bool done(const Event& event) override {
    touch("done");
    return inner().done(event);
  }
  bool await(const Event& event, double expected_seconds, const Gate* gate) override {
    touch("await");
    return inner().await(event, expected_seconds, gate);
  }
  void synchronize() override {
    touch("synchronize");
    inner().synchronize();
  }
  void finish() override {
    touch("finish");
    inner().finish();
  }
  Event record_timed(Queue queue) override {
    touch("record_timed");
    return inner().record_timed(queue);
  }
  double seconds_between(const Event& begin, const Event& end) override {
    touch("seconds_between");
    return inner().seconds_between(begin, end);
  }
  void run(const std::function<void()>& work) override {
    touch("run");
    inner().run(work);
  }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& work) override {
    touch("capture");
    return inner().capture(work);
  }
  std::unique_ptr<StreamScope> own_stream() override {
    touch("own_stream");
    return inner().own_stream();
  }

 private:
  struct Counter {
    Status count(const char* name) {
      const bool fails = ++calls == fails_at;
      const bool failed = fails_at > 0 && calls > fails_at && failure == Failure::kForEver;
      if (!fails && !failed) return {};
      return limit_reached(std::string(fails ? "injected failure" : "failure after the first") +
                           " of " + name + "()");
    }

    std::size_t calls = 0;
    std::size_t fails_at = 0;
    Failure failure = Failure::kOnce;
  };

  class FailingPages : public Pages {
   public:
    FailingPages(MemoryBlock block, std::shared_ptr<Counter> counter)
        : block_(std::move(block)), counter_(std::move(counter)) {}
    Status take() override {
      REGEN_TRY(counter_->count("take_pages"));
      return block_.take_pages();
    }
    Status release() override {
      REGEN_TRY(counter_->count("release_pages"));
      return block_.release_pages();
    }

   private:
    MemoryBlock block_;
    std::shared_ptr<Counter> counter_;
  };

  void touch(const char* name) {
    const Status status = counter_->count(name);
    if (status.ok()) return;
    // A device that is lost copies nothing more.
    if (counter_->failure == Failure::kForEver) inner().synchronize();
    TORCH_CHECK(false, status.error().message);
  }

  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
};

}  // namespace regen::execute
