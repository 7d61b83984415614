// Stretches of a step that are launched as a whole.
#include "regen/execute/run/repeated_work.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "step_fixture.h"

namespace regen::execute {
namespace {

const CpuDeviceOptions kCaptures{.captures = true};
constexpr int kSteps = 8;  // more than it takes until stretches are captured

// Steps with the memory and the numbers that `before` gives them.
class Steps {
 public:
  Steps(StepFixture& step, const Plan& plan) : step_(step) {
    EXPECT_TRUE(step_.data().reload().ok());
    auto executor = step_.compile(plan);
    EXPECT_TRUE(executor.ok()) << executor.error().message;
    executor_ = std::move(*executor);
    EXPECT_TRUE(bind(*executor_, step_.data()).ok());
    at::manual_seed(kTestSeed);
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      for (std::size_t part = 0; part < executor_->num_parts(); ++part) {
        ASSERT_TRUE(executor_->run(part).ok());
      }
    }
  }
  Executor& executor() { return *executor_; }
  std::size_t captured() const { return executor_->repeated().captured(); }

 private:
  StepFixture& step_;
  std::unique_ptr<Executor> executor_;
};

void expect_same(const std::vector<at::Tensor>& found, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].nbytes(), expected[i].nbytes());
    EXPECT_EQ(
        std::memcmp(found[i].const_data_ptr(), expected[i].const_data_ptr(), found[i].nbytes()), 0)
        << i;
  }
}

TEST(RepeatedWork, StepsLaunchedInStretchesEqualDirectCalls) {
  for (const char* planner : {"keep_all", "chain", "vdnn"}) {
    StepFixture step(make_chain({.dropout = true, .batch_norm = true, .update = true}), kCaptures);
    const search::Outcome outcome = step.solve(planner);
    ASSERT_TRUE(outcome.plan);
    expect_same(step.run(*outcome.plan, kSteps, /*debug=*/false), step.run_directly(kSteps));
  }
}

TEST(RepeatedWork, WaitsUntilNothingChanges) {
  StepFixture step(make_chain({.update = true}), kCaptures);
  Steps steps(step, *step.solve("keep_all").plan);
  steps.run(3);
  EXPECT_EQ(steps.captured(), 0u);
  steps.run(1);
  EXPECT_GT(steps.captured(), 0u);
}

TEST(RepeatedWork, ADeviceThatCapturesNothingRunsCallByCall) {
  StepFixture step(make_chain({.update = true}));
  Steps steps(step, *step.solve("keep_all").plan);
  steps.run(kSteps);
  EXPECT_EQ(steps.captured(), 0u);
}

TEST(RepeatedWork, OtherMemoryForParametersIsNoticed) {
  StepFixture step(make_chain({.update = true}), kCaptures);
  Steps steps(step, *step.solve("keep_all").plan);
  steps.run(kSteps);
  ASSERT_GT(steps.captured(), 0u);
  ASSERT_TRUE(bind(steps.executor(), step.data()).ok());
  EXPECT_GT(steps.captured(), 0u) << "the same memory again";
  for (std::size_t s = 0; s < step.program().storages.size(); ++s) {
    if (step.program().storages[StorageId(s)].role != Role::kParameter) continue;
    const at::Tensor elsewhere = step.data().tensor(StorageId(s)).clone();
    ASSERT_TRUE(steps.executor().bind(StorageId(s), elsewhere).ok());
    EXPECT_EQ(steps.captured(), 0u);
    return;
  }
  FAIL() << "the program has no parameters";
}

// What changes from step to step is in no stretch, and nothing else is left out.
TEST(RepeatedWork, StretchesHoldWhatStaysTheSame) {
  StepFixture step(make_chain({.layers = 6, .dropout = true, .boundary = true}));
  const auto executor = step.compile(*step.solve("vdnn").plan);
  ASSERT_TRUE(executor.ok());
  const Program& program = step.program();
  auto memory = plan_memory(step.graph(), *step.solve("vdnn").plan, step.device()->alignment());
  ASSERT_TRUE(memory.ok());
  std::vector<std::byte> arena(static_cast<std::size_t>(memory->arena) + 64);
  auto list = make_instructions(step.recording(), step.step(), *step.solve("vdnn").plan, *memory,
                                {.arena = arena.data()});
  ASSERT_TRUE(list.ok());
  const auto stretches =
      find_stretches(*list, program, 0, list->instructions.size(), {.least_calls = 1});
  std::vector<bool> inside(list->instructions.size(), false);
  for (const Stretch& stretch : stretches) {
    ASSERT_LT(stretch.first, stretch.last);
    for (std::size_t i = stretch.first; i < stretch.last; ++i) inside[i] = true;
  }
  const auto text_has = [](const Json& json, const std::string& what) {
    return json.dump().find(what) != std::string::npos;
  };
  for (std::size_t i = 0; i < inside.size(); ++i) {
    if (list->instructions[i].kind != InstructionKind::kCompute) {
      EXPECT_FALSE(inside[i]);
      continue;
    }
    const ComputeInstruction& call = list->computes[list->instructions[i].index];
    const Node& node = program.nodes[call.node];
    bool same = !node.random && call.external.empty();
    for (std::size_t v = 0; v < program.values.size(); ++v) {
      const StorageId storage = program.values[ValueId(v)].storage;
      const Role role = program.storages[storage].role;
      bool changing = role == Role::kInput || role == Role::kTangent;
      for (const auto& other : list->computes) {
        for (const auto& external : other.external) changing |= external.storage == storage;
      }
      const std::string reference = "{\"value\":" + std::to_string(v) + "}";
      const bool made = std::ranges::find(node.outputs, ValueId(v)) != node.outputs.end();
      if (changing && (made || text_has(Json(node.args), reference))) same = false;
    }
    EXPECT_EQ(inside[i], same) << describe(program, call.node);
  }
}

}  // namespace
}  // namespace regen::execute
