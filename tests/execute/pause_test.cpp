// Steps that give way: at any quantum, under plans that recompute, move and do both, with the bits
// of an undisturbed run; never more on the device than may be; errors that say what is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "forwarding_device.h"
#include "step_fixture.h"

namespace regen::execute {
namespace {

using ::testing::HasSubstr;

// Every op is a quantum of its own.
constexpr double kEachOp = 1e-12;

// Closes as its function says; counts.
class FakeGate : public Gate {
 public:
  explicit FakeGate(std::function<bool(std::size_t)> opens) : opens_(std::move(opens)) {}

  bool open() const override { return opens_(asked_++); }
  bool hurried() const override { return is_hurried; }
  Status wait() override {
    ++waits_;
    if (meanwhile) meanwhile();
    return waits_ == fail_at ? Status(missing("nobody lets it go on")) : Status();
  }
  std::size_t asked() const { return asked_; }
  std::size_t waits() const { return waits_; }
  std::size_t fail_at = 0;
  bool is_hurried = true;
  std::function<void()> meanwhile;  // while the step waits

 private:
  std::function<bool(std::size_t)> opens_;
  mutable std::size_t asked_ = 0;
  std::size_t waits_ = 0;
};

// A device whose compute queue lags behind for ever: quanta are done when a caller waits for them.
// It forwards everything and counts what is on its way.
class LaggingDevice : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  // Copies wait for compute too; the executor records for them, and awaits quanta only.
  Event record(Queue queue) override {
    Event event = ForwardingDevice::record(queue);
    if (queue == Queue::kCompute) event = {.queue = queue, .ticket = started};
    return event;
  }
  void wait(Queue waiter, const Event& event) override {
    if (event.queue != Queue::kCompute) ForwardingDevice::wait(waiter, event);
  }
  bool await(const Event& event, double /*expected_seconds*/, const Gate* gate) override {
    EXPECT_EQ(event.queue, Queue::kCompute);
    if (asks && gate != nullptr && !gate->open()) {
      ++interrupted;
      return false;
    }
    finished = std::max<std::size_t>(finished, event.ticket);
    return true;
  }
  void synchronize() override {
    ForwardingDevice::synchronize();
    finished = started;
  }

  std::size_t started = 0;   // quanta, counted by the gate
  std::size_t finished = 0;  // quanta known to be done
  bool asks = false;         // the caller that waits for a quantum asks the gate, once
  std::size_t interrupted = 0;
};

class PausedStep : public StepFixture {
 public:
  using StepFixture::StepFixture;

  // As run(), with a gate.
  std::vector<at::Tensor> run_gated(const Plan& plan, std::shared_ptr<Gate> gate, double quantum,
                                    int steps = 2) {
    EXPECT_TRUE(data_->reload().ok());
    auto executor = compile(plan, /*debug=*/true);
    EXPECT_TRUE(executor.ok()) << executor.error().message;
    EXPECT_TRUE(bind(**executor, *data_).ok());
    (*executor)->set_gate(std::move(gate), quantum);
    return run_steps(**executor, steps);
  }

  std::vector<at::Tensor> run_steps(Executor& executor, int steps) {
    at::manual_seed(kTestSeed);
    for (int i = 0; i < steps; ++i) {
      for (std::size_t part = 0; part < executor.num_parts(); ++part) {
        const Status status = executor.run(part);
        EXPECT_TRUE(status.ok()) << status.error().message;
      }
    }
    pauses = executor.num_pauses();
    return left([&](std::size_t r) { return executor.result(r); });
  }

  std::shared_ptr<const Recording> shared_recording() { return recording_; }
  std::shared_ptr<const StepGraph> shared_step() { return step_; }
  std::size_t pauses = 0;
};

struct Kind {
  const char* name;
  const char* planner;
  Link link;
};
const Kind kKinds[] = {{"recompute", "checkmate", {}},
                       {"swap", "vdnn", {1e12, 1e12, 2e12}},
                       {"both", "vdnn", {1e8, 1e8, 2e8}}};

Plan tight_plan(PausedStep& fixture, const Kind& kind) {
  const auto outcome =
      search::least_budget(kind.planner, {.graph = &fixture.graph(), .link = kind.link},
                           {.alignment = 64}, {.work = 20'000});
  EXPECT_TRUE(outcome.ok() && outcome->plan) << kind.name;
  const bool moves = outcome->simulation.offloaded_bytes > 0;
  EXPECT_EQ(moves, kind.link.to_host > 0) << kind.name;
  return *outcome->plan;
}

class PauseTest : public ::testing::TestWithParam<std::tuple<std::size_t, bool>> {
 protected:
  const Kind& kind() const { return kKinds[std::get<0>(GetParam())]; }
  ChainOptions options() const {
    const bool boundary = std::get<1>(GetParam());
    return {.layers = 6,
            .width = 32,
            .dropout = true,
            .batch_norm = true,
            .boundary = boundary,
            .update = !boundary};
  }
};

TEST_P(PauseTest, AtEveryWindowTheBitsAreThoseOfAnUndisturbedRun) {
  PausedStep fixture(make_chain(options()));
  const Plan plan = tight_plan(fixture, kind());
  const auto expected = fixture.run(plan);
  const auto gate = std::make_shared<FakeGate>([](std::size_t) { return false; });
  expect_same_bits(fixture.run_gated(plan, gate, kEachOp), expected);
  EXPECT_EQ(gate->waits(), gate->asked());
  EXPECT_EQ(fixture.pauses, gate->waits());
  // At least once for each op that is run.
  EXPECT_GE(gate->asked(), 2 * fixture.graph().num_ops() - 4);
}

TEST_P(PauseTest, AtRandomWindowsOfAnyLengthToo) {
  PausedStep fixture(make_chain(options()));
  const Plan plan = tight_plan(fixture, kind());
  const auto expected = fixture.run(plan);
  const double whole = fixture.graph().base_cost();
  std::mt19937 random(11);
  std::size_t waits = 0;
  for (int round = 0; round < 4; ++round) {
    const double quantum = whole / static_cast<double>(1 + random() % 30);
    const auto gate =
        std::make_shared<FakeGate>([&random](std::size_t) { return random() % 3 != 0; });
    expect_same_bits(fixture.run_gated(plan, gate, quantum), expected);
    waits += gate->waits();
  }
  EXPECT_GT(waits, 4U);
}

// What a daemon does that needs the room: the memory leaves while the step waits.
TEST_P(PauseTest, WithItsMemoryAwayMeanwhileTheBitsAreTheSame) {
  PausedStep fixture(make_chain(options()));
  const Plan plan = tight_plan(fixture, kind());
  const auto expected = fixture.run(plan);
  ASSERT_TRUE(fixture.data().reload().ok());
  auto executor = Executor::compile(fixture.shared_recording(), fixture.shared_step(), plan,
                                    fixture.device(), {.reserve = 1 << 14, .releasable = true});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  const auto gate = std::make_shared<FakeGate>([](std::size_t asked) { return asked % 3 != 2; });
  Bytes freed = 0;
  gate->meanwhile = [&] {
    const auto bytes = (*executor)->spill();
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    freed += *bytes;
  };
  (*executor)->set_gate(gate, kEachOp);
  expect_same_bits(fixture.run_steps(**executor, 2), expected);
  EXPECT_FALSE((*executor)->spilled());
  EXPECT_GT(gate->waits(), fixture.graph().num_ops() / 3);
  EXPECT_EQ(freed, static_cast<Bytes>(gate->waits()) * (*executor)->arena_bytes());
}

TEST_P(PauseTest, NeverMoreThanTwoWindowsAreOnTheDevice) {
  PausedStep fixture(make_chain(options()));
  const Plan plan = tight_plan(fixture, kind());
  const auto device = std::make_shared<LaggingDevice>(fixture.device());
  auto executor = Executor::compile(fixture.shared_recording(), fixture.shared_step(), plan, device,
                                    {.reserve = 1 << 14});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  std::size_t most = 0;
  std::size_t closed = 0;
  const auto gate = std::make_shared<FakeGate>([&](std::size_t asked) {
    if (asked % 7 == 6) ++closed;
    ++device->started;  // the quantum that is about to be issued
    most = std::max(most, device->started - device->finished);
    return asked % 7 != 6;
  });
  bool beside = false;
  gate->meanwhile = [&] { beside |= device->started - 1 > device->finished; };
  (*executor)->set_gate(gate, fixture.graph().base_cost() / 20);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t part = 0; part < (*executor)->num_parts(); ++part) {
      const Status status = (*executor)->run(part);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
  }
  // Two that follow each other are longer than a quarter of what may be there.
  EXPECT_GE(most, 2U);
  EXPECT_LE(most, 8U);
  EXPECT_EQ(gate->waits(), closed);
  EXPECT_GT(closed, 3U);
  EXPECT_TRUE(beside);  // the next job need not wait for what was issued
}

TEST_P(PauseTest, MoreIsOnTheDeviceWhileNobodyIsInAHurry) {
  PausedStep fixture(make_chain(options()));
  const Plan plan = tight_plan(fixture, kind());
  std::vector<std::size_t> most;
  for (const bool hurried : {true, false}) {
    ASSERT_TRUE(fixture.data().reload().ok());
    const auto device = std::make_shared<LaggingDevice>(fixture.device());
    auto executor = Executor::compile(fixture.shared_recording(), fixture.shared_step(), plan,
                                      device, {.reserve = 1 << 14});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    ASSERT_TRUE(bind(**executor, fixture.data()).ok());
    most.push_back(0);
    const auto gate = std::make_shared<FakeGate>([&](std::size_t) {
      ++device->started;
      most.back() = std::max(most.back(), device->started - device->finished);
      return true;
    });
    gate->is_hurried = hurried;
    (*executor)->set_gate(gate, fixture.graph().base_cost() / 20);
    for (std::size_t part = 0; part < (*executor)->num_parts(); ++part) {
      const Status status = (*executor)->run(part);
      ASSERT_TRUE(status.ok()) << status.error().message;
    }
    EXPECT_EQ(gate->waits(), 0U);
  }
  EXPECT_GE(most[1], 2 * most[0]);
}

TEST_P(PauseTest, WhoWaitsForTheDeviceGivesWayToo) {
  PausedStep fixture(make_chain(options()));
  const Plan plan = tight_plan(fixture, kind());
  const auto expected = fixture.run(plan);
  ASSERT_TRUE(fixture.data().reload().ok());
  const auto device = std::make_shared<LaggingDevice>(fixture.device());
  device->asks = true;
  auto executor = Executor::compile(fixture.shared_recording(), fixture.shared_step(), plan, device,
                                    {.reserve = 1 << 14});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  std::size_t closed = 0;
  const auto gate = std::make_shared<FakeGate>([&](std::size_t asked) {
    ++device->started;
    const bool opens = asked % 3 != 2;
    closed += opens ? 0 : 1;
    return opens;
  });
  (*executor)->set_gate(gate, kEachOp);
  expect_same_bits(fixture.run_steps(**executor, 2), expected);
  EXPECT_GT(device->interrupted, 2U);
  EXPECT_LT(device->interrupted, closed) << "at other times it is found closed when there is room";
  EXPECT_EQ(gate->waits(), closed);
}

INSTANTIATE_TEST_SUITE_P(Plans, PauseTest,
                         ::testing::Combine(::testing::Range(0UL, 3UL), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(kKinds[std::get<0>(test.param)].name) +
                                  (std::get<1>(test.param) ? "_two_parts" : "_whole_step");
                         });

TEST(Pause, AnOpenGateIsAskedOnceForEachWindow) {
  PausedStep fixture(make_chain({.layers = 3, .update = true}));
  const Plan plan = *fixture.solve("keep_all").plan;
  const auto gate = std::make_shared<FakeGate>([](std::size_t) { return true; });
  expect_same_bits(fixture.run_gated(plan, gate, 1e6, 3), fixture.run(plan, 3));
  EXPECT_EQ(gate->asked(), 3U);
  EXPECT_EQ(gate->waits(), 0U);
}

// The step is given up where the gate says so, and the message says whether parameters changed.
TEST(Pause, AGateThatFailsEndsTheStepAndSaysWhatIsLeft) {
  PausedStep fixture(make_chain({.layers = 3, .update = true}));
  const Plan plan = *fixture.solve("keep_all").plan;
  ASSERT_TRUE(fixture.data().reload().ok());
  auto executor = fixture.compile(plan);
  ASSERT_TRUE(executor.ok());
  ASSERT_TRUE(bind(**executor, fixture.data()).ok());
  const auto always = std::make_shared<FakeGate>([](std::size_t) { return false; });
  (*executor)->set_gate(always, kEachOp);
  ASSERT_TRUE((*executor)->run(0).ok());
  const std::size_t quanta = always->asked();
  bool between = false;
  for (std::size_t w = 1; w <= quanta; ++w) {
    const auto gate = std::make_shared<FakeGate>([](std::size_t) { return false; });
    gate->fail_at = w;
    (*executor)->set_gate(gate, kEachOp);
    ASSERT_TRUE(fixture.data().reload().ok() && bind(**executor, fixture.data()).ok());
    std::vector<at::Tensor> before;
    for (std::size_t s = 0; s < fixture.data().size(); ++s) {
      before.push_back(fixture.data().tensor(StorageId(s)).defined()
                           ? fixture.data().tensor(StorageId(s)).clone()
                           : at::Tensor());
    }
    const Status status = (*executor)->run(0);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, HasSubstr("nobody lets it go on; the step ended "));
    bool changed = false;
    for (std::size_t s = 0; s < before.size(); ++s) {
      changed |= before[s].defined() && !before[s].equal(fixture.data().tensor(StorageId(s)));
    }
    const bool says_so =
        status.error().message.find("updates: parameters are between") != std::string::npos;
    EXPECT_EQ(says_so, changed) << status.error().message;
    EXPECT_EQ(!says_so,
              status.error().message.find("before its first update") != std::string::npos);
    between |= says_so;
  }
  EXPECT_TRUE(between);
}

}  // namespace
}  // namespace regen::execute
