// A program on the CPU from its recording to what steps under plans leave behind.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/program/program_data.h"
#include "regen/execute/run/direct_step.h"
#include "regen/execute/run/executor.h"
#include "regen/search/services/addressed_plan.h"
#include "regen/search/services/least_budget.h"
#include "small_program.h"
#include "tests/support/planners/planners_by_name.h"

namespace regen::execute {

inline constexpr Link kTestLink{1e9, 1e9, 2e9};
inline constexpr std::uint64_t kTestSeed = 5;

class StepFixture {
 public:
  explicit StepFixture(Program program, const CpuDeviceOptions& device = {},
                       const RecordOptions& options = {.repeats = 1})
      : device_(make_cpu_device(device)) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = save_program(std::move(program), std::string(test->name()) + "_step");
    program_ = *load_program(folder_);
    data_.emplace(*ProgramData::load(folder_, program_, c10::kCPU));
    record_again(options);
  }

  void record_again(const RecordOptions& options) {
    auto recording = record(program_, *device_, options);
    EXPECT_TRUE(recording.ok()) << recording.error().message;
    settle_times(*recording);
    recording_ = std::make_shared<const Recording>(std::move(*recording));
    auto step = make_step_graph(*recording_, {.alignment = device_->alignment()});
    EXPECT_TRUE(step.ok()) << step.error().message;
    step_ = std::make_shared<const StepGraph>(std::move(*step));
  }

  const Graph& graph() const { return step_->graph; }
  const StepGraph& step() const { return *step_; }
  const Recording& recording() const { return *recording_; }
  const Program& program() const { return program_; }
  ProgramData& data() { return *data_; }
  std::shared_ptr<ExecutionDevice> device() { return device_; }

  search::Outcome solve(const std::string& planner, std::optional<Bytes> budget = {}) {
    const search::Problem problem{.graph = &graph(), .link = kTestLink, .budget = budget};
    auto outcome = search::solve_addressed(planner, problem, {.alignment = device_->alignment()},
                                           {.work = 100'000});
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return *outcome;
  }
  // The plan for the least budget that the planner meets.
  search::Outcome tightest(const std::string& planner) {
    auto outcome = search::least_budget(planner, {.graph = &graph(), .link = kTestLink},
                                        {.alignment = device_->alignment()}, {.work = 100'000});
    EXPECT_TRUE(outcome.ok()) << outcome.error().message;
    return *outcome;
  }

  Result<std::unique_ptr<Executor>> compile(const Plan& plan, bool debug = false) {
    return Executor::compile(recording_, step_, plan, device_,
                             {.reserve = 1 << 14, .debug = debug, .capture = true});
  }

  // All that some steps leave behind: results of the last, then whatever can change.
  std::vector<at::Tensor> run(const Plan& plan, int steps = 2, bool debug = true) {
    EXPECT_TRUE(data_->reload().ok());
    auto executor = compile(plan, debug);
    EXPECT_TRUE(executor.ok()) << executor.error().message;
    EXPECT_TRUE(bind(**executor, *data_).ok());
    at::manual_seed(kTestSeed);
    for (int i = 0; i < steps; ++i) {
      for (std::size_t part = 0; part < (*executor)->num_parts(); ++part) {
        const Status status = (*executor)->run(part);
        EXPECT_TRUE(status.ok()) << status.error().message;
      }
    }
    EXPECT_TRUE((*executor)->deviations().empty());
    return left([&](std::size_t r) { return (*executor)->result(r); });
  }

  std::vector<at::Tensor> run_directly(int steps = 2) {
    EXPECT_TRUE(data_->reload().ok());
    auto step = DirectStep::make(program_, *data_, device_);
    EXPECT_TRUE(step.ok()) << step.error().message;
    at::manual_seed(kTestSeed);
    for (int i = 0; i < steps; ++i) EXPECT_TRUE((*step)->run().ok());
    return left([&](std::size_t r) { return (*step)->result(r); });
  }

 protected:
  // Plans and quanta must not depend on who else uses the machine: made-up times in place of the
  // measured ones, except where a test is about which of several ways is quicker.
  static void settle_times(Recording& recording) {
    for (std::size_t n = 0; n < recording.nodes.size(); ++n) {
      NodeRecord& node = recording.nodes[NodeId(n)];
      if (!node.computes || !node.alternatives.empty()) continue;
      node.seconds = 1e-5 * static_cast<double>(1 + n % 7);
      if (node.shorter_seconds) {
        node.shorter_seconds = std::min(*node.shorter_seconds, node.seconds / 3);
      }
    }
  }

  template <typename TakeResult>
  std::vector<at::Tensor> left(const TakeResult& result) {
    std::vector<at::Tensor> tensors;
    for (std::size_t r = 0; r < program_.results.size(); ++r) {
      tensors.push_back(result(r).contiguous().clone());
    }
    for (std::size_t s = 0; s < data_->size(); ++s) {
      if (data_->tensor(StorageId(s)).defined())
        tensors.push_back(data_->tensor(StorageId(s)).clone());
    }
    tensors.push_back(at::globalContext().defaultGenerator(c10::kCPU).get_state());
    return tensors;
  }

  std::shared_ptr<CpuDevice> device_;
  std::string folder_;
  Program program_;
  std::optional<ProgramData> data_;
  std::shared_ptr<const Recording> recording_;
  std::shared_ptr<const StepGraph> step_;
};

inline void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].nbytes(), b[i].nbytes()) << i;
    EXPECT_EQ(std::memcmp(a[i].const_data_ptr(), b[i].const_data_ptr(), a[i].nbytes()), 0) << i;
  }
}

}  // namespace regen::execute
