// Every call of the device, and every allocation of torch, that a step makes fails in turn. What is
// left is the state before the step, or an error that says how far the updates came; never an
// exception, and never something in between that looks whole.
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "failing_device.h"
#include "regen/execute/device/memory_meter.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

// Gives way before every op, and lets the memory go meanwhile if it can.
class YieldingGate : public Gate {
 public:
  bool open() const override { return false; }
  bool hurried() const override { return true; }
  Status wait() override { return meanwhile ? meanwhile() : Status(); }
  std::function<Status()> meanwhile;
};

// Torch's allocator, of which one request fails.
class FailingAllocator final : public c10::Allocator {
 public:
  FailingAllocator() : inner_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~FailingAllocator() override { c10::SetCPUAllocator(inner_, kPriority); }
  FailingAllocator(const FailingAllocator&) = delete;
  FailingAllocator& operator=(const FailingAllocator&) = delete;

  c10::DataPtr allocate(std::size_t bytes) override {
    TORCH_CHECK(++requests != fails_at, "injected failure of an allocation");
    return inner_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return inner_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

  std::size_t requests = 0;
  std::size_t fails_at = 0;

 private:
  static constexpr std::uint8_t kPriority = 200;  // as placement's own, which comes later
  c10::Allocator* inner_;
};

struct Way {
  const char* name;
  const char* planner;
  Link link;
  bool boundary;
  bool gated;
  bool captures;
  bool batch_norm = false;  // whose running statistics the forward part changes
};

const Way kWays[] = {{"kept", "keep_all", {}, false, false, false},
                     {"recomputed", "checkmate", {}, false, false, false},
                     {"moved", "vdnn", {1e8, 1e8, 2e8}, false, false, false},
                     {"in_parts", "checkmate", {}, true, false, false},
                     {"moved_in_parts", "vdnn", {1e8, 1e8, 2e8}, true, false, false},
                     {"paused", "vdnn", {1e8, 1e8, 2e8}, false, true, false},
                     {"captured", "keep_all", {}, false, false, true},
                     {"statistics", "checkmate", {}, false, false, false, true},
                     {"statistics_in_parts", "keep_all", {}, true, false, false, true}};

class FaultyStep : public StepFixture {
 public:
  explicit FaultyStep(const Way& way)
      : StepFixture(
            make_chain({.layers = way.gated || way.batch_norm ? std::size_t{2} : std::size_t{4},
                        .width = 16,
                        .dropout = true,
                        .batch_norm = way.batch_norm,
                        .boundary = way.boundary,
                        .update = !way.boundary}),
            {.captures = way.captures}, {.repeats = 1, .capture = way.captures}),
        way_(way),
        failing_(std::make_shared<FailingDevice>(device_)) {
    const search::Problem problem{.graph = &graph(), .link = way.link};
    const auto outcome =
        way.planner == std::string("keep_all")
            ? search::solve_addressed(way.planner, problem, {.alignment = 64})
            : search::least_budget(way.planner, problem, {.alignment = 64}, {.work = 20'000});
    EXPECT_TRUE(outcome.ok() && outcome->plan) << way.name;
    plan_ = *outcome->plan;
  }

  // With the state of before any step.
  void begin() {
    executor_.reset();
    EXPECT_TRUE(data_->reload().ok());
    failing_->fail_at(0);
    auto executor = compile_failing();
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    executor_ = std::move(*executor);
    EXPECT_TRUE(bind(*executor_, *data_).ok());
    if (way_.gated) {
      auto gate = std::make_shared<YieldingGate>();
      gate->meanwhile = [this]() -> Status {
        const auto spilled = executor_->spill();
        return spilled.ok() ? Status() : Status(spilled.error());
      };
      executor_->set_gate(std::move(gate), 1e-12);
    }
    at::manual_seed(kTestSeed);
  }

  Result<std::unique_ptr<Executor>> compile_failing() {
    return Executor::compile(recording_, step_, plan_, failing_,
                             {.reserve = 1 << 14, .releasable = way_.gated, .capture = true});
  }

  // All parts of a step, up to the first that fails. Memory that had left when the last one failed
  // comes back first.
  Status step() {
    REGEN_TRY(executor_->restore());
    for (std::size_t part = 0; part < executor_->num_parts(); ++part) {
      failed_part_ = part;
      REGEN_TRY(executor_->run(part));
    }
    return {};
  }

  // Parameters, buffers and the generator; results too if a step has ended.
  std::vector<at::Tensor> state() {
    std::vector<at::Tensor> tensors;
    for (std::size_t s = 0; s < data_->size(); ++s) {
      if (data_->tensor(StorageId(s)).defined())
        tensors.push_back(data_->tensor(StorageId(s)).clone());
    }
    tensors.push_back(at::globalContext().defaultGenerator(c10::kCPU).get_state());
    return tensors;
  }
  std::vector<at::Tensor> all() {
    return left([&](std::size_t r) { return executor_->result(r); });
  }

  void end() { executor_.reset(); }
  FailingDevice& failing() { return *failing_; }
  std::size_t failed_part() const { return failed_part_; }

 private:
  const Way way_;
  std::shared_ptr<FailingDevice> failing_;
  Plan plan_;
  std::unique_ptr<Executor> executor_;
  std::size_t failed_part_ = 0;
};

class ExecutorFaults : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    step_.emplace(GetParam());
    step_->begin();
    before_ = step_->state();
    ASSERT_TRUE(step_->step().ok());
    first_ = step_->all();
    ASSERT_TRUE(step_->step().ok());
    second_ = step_->all();
  }

  // The step after a good one, in which something has failed.
  void expect_whole(const Status& status, const std::vector<at::Tensor>& before) {
    const std::string& message = status.error().message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    const bool between = message.find("between two steps") != std::string::npos;
    partly_updated_ += between;
    if (between) return;
    if (!GetParam().boundary) {
      EXPECT_THAT(message, HasSubstr("before its first update"));
    }
    if (step_->failed_part() == 0) expect_same_bits(step_->state(), before);
    step_->failing().fail_at(0);
    const Status again = step_->step();
    ASSERT_TRUE(again.ok()) << again.error().message;
    if (restarts_at_first_) expect_same_bits(step_->all(), second_);
  }

  std::optional<FaultyStep> step_;
  std::vector<at::Tensor> before_, first_, second_;
  std::size_t partly_updated_ = 0;
  bool restarts_at_first_ = true;
};

TEST_P(ExecutorFaults, AStepIsWholeAfterAnyCallOfTheDeviceFails) {
  step_->begin();
  ASSERT_TRUE(step_->step().ok());
  step_->failing().fail_at(0);
  ASSERT_TRUE(step_->step().ok());
  const std::size_t calls = step_->failing().calls();
  ASSERT_GT(calls, 2U);
  for (std::size_t call = 1; call <= calls; ++call) {
    SCOPED_TRACE("call " + std::to_string(call) + " of " + std::to_string(calls));
    step_->begin();
    ASSERT_TRUE(step_->step().ok());
    const std::vector<at::Tensor> before = step_->state();
    step_->failing().fail_at(call);
    const Status status = step_->step();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("injected failure"));
    // A second forward part draws other numbers than the first one did.
    restarts_at_first_ = step_->failed_part() == 0;
    expect_whole(status, before);
  }
  RecordProperty("sites", static_cast<int>(calls));
  if (!GetParam().boundary) {
    EXPECT_LT(partly_updated_, calls);
  }
}

TEST_P(ExecutorFaults, ADeviceThatIsLostEndsInTheFirstErrorsText) {
  step_->begin();
  step_->failing().fail_at(0);
  ASSERT_TRUE(step_->step().ok());
  const std::size_t calls = step_->failing().calls();
  for (std::size_t call = 1; call <= calls; ++call) {
    SCOPED_TRACE("call " + std::to_string(call) + " of " + std::to_string(calls));
    step_->begin();
    step_->failing().fail_at(call, Failure::kForEver);
    const Status status = step_->step();
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("injected failure"));
    const Status next = step_->step();
    ASSERT_FALSE(next.ok());
    EXPECT_THAT(next.error().message, HasSubstr("failure after the first"));
    step_->end();  // lets go of everything, on a device that fails
  }
}

TEST_P(ExecutorFaults, AStepIsWholeAfterAnyAllocationFails) {
  step_->begin();
  ASSERT_TRUE(step_->step().ok());
  FailingAllocator allocator;
  allocator.requests = 0;
  ASSERT_TRUE(step_->step().ok());
  const std::size_t requests = allocator.requests;
  for (std::size_t request = 1; request <= requests; ++request) {
    SCOPED_TRACE("request " + std::to_string(request) + " of " + std::to_string(requests));
    step_->begin();
    ASSERT_TRUE(step_->step().ok());
    const std::vector<at::Tensor> before = step_->state();
    allocator.requests = 0;
    allocator.fails_at = request;
    const Status status = step_->step();
    allocator.fails_at = 0;
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("injected failure of an allocation"));
    restarts_at_first_ = step_->failed_part() == 0;
    expect_whole(status, before);
  }
  RecordProperty("sites", static_cast<int>(requests));
}

TEST_P(ExecutorFaults, NothingIsLeftOfACompilationThatFails) {
  step_->end();
  const Bytes before = memory_use(c10::kCPU)->allocated;
  step_->failing().fail_at(0);
  ASSERT_TRUE(step_->compile_failing().ok());
  const std::size_t calls = step_->failing().calls();
  std::size_t refused = 0;
  for (std::size_t call = 1; call <= calls; ++call) {
    SCOPED_TRACE("call " + std::to_string(call) + " of " + std::to_string(calls));
    step_->failing().fail_at(call);
    auto executor = step_->compile_failing();
    refused += !executor.ok();
    // The last call is that of the destructor, which cannot report it.
    if (!executor.ok()) {
      EXPECT_THAT(executor.error().message, HasSubstr("injected failure"));
    }
    executor = missing("nothing");
    EXPECT_EQ(memory_use(c10::kCPU)->allocated, before);
  }
  EXPECT_GT(refused, 0U);
}

INSTANTIATE_TEST_SUITE_P(Ways, ExecutorFaults, ::testing::ValuesIn(kWays),
                         [](const auto& way) { return std::string(way.param.name); });

}  // namespace
}  // namespace regen::execute
