// Steps that really run, and what was seen of their time and memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/runtime/left_behind.h"
#include "cli/runtime/step_plan.h"
#include "regen/session/state/compiled_step.h"

namespace regen::cli {

struct RunOptions {
  std::int64_t warm_up = 0;  // steps whose time does not count
  std::int64_t steps = 5;
  std::uint64_t seed = 0;  // of the random numbers of the first step
  bool debug = false;
  bool trace = false;  // of the last step, whose time then counts only if it is the only one
};

struct MeasuredRun {
  std::vector<double> seconds;  // of each step that counts
  // On the CPU: what the memory meter saw. On CUDA: torch's own peak and the arena.
  Bytes peak_bytes = 0;
  Bytes driver_bytes = 0;  // CUDA: by which the driver's count has grown
  Bytes arena_bytes = 0;
  Bytes host_bytes = 0;
  std::vector<execute::Deviation> deviations;
  std::vector<execute::StepTime> trace;
  std::vector<LeftTensor> left;

  double median() const;
  // Allocations that were not as recorded.
  std::size_t unforeseen() const;
};

// Each run starts from the contents that travel with the program.
Result<MeasuredRun> run_planned(PreparedStep& prepared, const session::PlannedStep& planned,
                                const RunOptions& options);
// Without a plan: operator by operator, memory from torch.
Result<MeasuredRun> run_directly(PreparedStep& prepared, const RunOptions& options);

// What the executor's loop takes beside the operators it calls: of some steps of the plan, the one
// in the middle.
Result<execute::HostTime> host_time(PreparedStep& prepared, const session::PlannedStep& planned,
                                    std::int64_t steps);

// The real timeline of a step in the form of simulate/trace.h; memory as simulated, which follows
// from the plan alone.
Result<std::string> measured_trace(const PreparedStep& prepared, const Plan& plan,
                                   const std::vector<execute::StepTime>& times);

}  // namespace regen::cli
