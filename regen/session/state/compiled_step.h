// The fourth state of a step: its instructions, arena and host memory are there, and it can run.
#pragma once

#include <memory>
#include <vector>

#include "regen/execute/run/executor.h"
#include "regen/session/job_memory.h"
#include "regen/session/state/planned_step.h"

namespace regen::session {

struct CompileOptions {
  bool debug = false;       // poison released memory and check where every result lies
  bool releasable = false;  // the arena's memory may go and come back
  Bytes beside = 0;         // of the budget, not in use: for allocations that were not foreseen
  // Knows the arena while the step is compiled, so that another thread can move it.
  std::shared_ptr<JobMemory> memory = nullptr;
  // As ExecutorOptions::arena.
  std::shared_ptr<execute::MemoryBlock> arena = nullptr;
};

// When an op ran on the device, in seconds since the first traced one began.
struct TracedOp {
  std::string name;
  double begin = 0;
  double end = 0;
};

// Made by PlannedStep alone.
class CompiledStep {
 public:
  CompiledStep(CompiledStep&&) noexcept = default;
  CompiledStep& operator=(CompiledStep&&) noexcept;
  ~CompiledStep();

  const PlannedStep& planned() const { return planned_; }
  execute::Executor& executor() { return *executor_; }
  const execute::Executor& executor() const { return *executor_; }

  // All parts of one step.
  Status run();
  // One part; parts run in order.
  Status run(std::size_t part) { return executor_->run(part); }

  MemoryReport memory() const;
  std::vector<TracedOp> take_trace();

 private:
  friend class PlannedStep;
  CompiledStep(PlannedStep planned, std::unique_ptr<execute::Executor> executor,
               std::shared_ptr<JobMemory> memory);
  void let_go();

  PlannedStep planned_;
  std::unique_ptr<execute::Executor> executor_;
  std::shared_ptr<JobMemory> memory_;
};

}  // namespace regen::session
