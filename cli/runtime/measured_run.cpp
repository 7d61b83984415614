#include "cli/runtime/measured_run.h"

#include <ATen/Context.h>

#include <algorithm>
#include <chrono>

#include "regen/base/progress/progress.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/run/direct_step.h"
#include "regen/simulate/trace.h"

namespace regen::cli {
namespace {

// A gap of this length on the real compute queue is a wait; shorter ones are the host's.
constexpr double kShortestWait = 20e-6;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Puts the program's contents back and says what is allocated that is not theirs: what earlier
// runs left behind.
Result<Bytes> start_afresh(PreparedStep& prepared) {
  if (prepared.data_used) REGEN_TRY(prepared.data->reload());
  prepared.data_used = true;
  const c10::Device device = prepared.device().torch_device();
  REGEN_ASSIGN(const execute::MemoryUse use, execute::memory_use(device));
  return use.allocated - prepared.data->bytes_on(device);
}

// Times steps and notes the highest memory meanwhile. `run` runs a step; `forget` lets go of what
// it returned, as a training loop would before the next.
template <typename Run, typename Forget>
Status measure(PreparedStep& prepared, const RunOptions& options, Bytes others,
               MeasuredRun& measured, const Run& run, const Forget& forget) {
  const c10::Device device = prepared.device().torch_device();
  const std::int64_t all = options.warm_up + options.steps;
  at::manual_seed(options.seed);
  REGEN_TRY(execute::reset_memory_peak(device));
  Progress progress({.stage = "run", .pieces = "steps", .total = static_cast<std::size_t>(all)});
  for (std::int64_t i = 0; i < all; ++i, progress.advance()) {
    if (i > 0) forget();
    if (i == options.warm_up) REGEN_TRY(execute::reset_memory_peak(device));
    prepared.device().synchronize();
    const double begin = seconds_now();
    REGEN_TRY(run(i + 1 == all));
    prepared.device().synchronize();
    const bool traced = options.trace && i + 1 == all && options.steps > 1;
    if (i >= options.warm_up && !traced) measured.seconds.push_back(seconds_now() - begin);
  }
  REGEN_ASSIGN(const execute::MemoryUse use, execute::memory_use(device));
  measured.peak_bytes = use.allocated_peak - others + (device.is_cpu() ? 0 : measured.arena_bytes);
  measured.driver_bytes = device.is_cpu() ? 0 : use.driver - prepared.driver_bytes_before;
  return {};
}

Result<session::CompiledStep> compile(PreparedStep& prepared, const session::PlannedStep& planned,
                                      bool debug) {
  REGEN_ASSIGN(session::CompiledStep step, planned.compile({.debug = debug}));
  REGEN_TRY(execute::bind(step.executor(), *prepared.data));
  return step;
}

}  // namespace

double MeasuredRun::median() const {
  std::vector<double> sorted = seconds;
  std::sort(sorted.begin(), sorted.end());
  return sorted.empty() ? 0 : sorted[sorted.size() / 2];
}

std::size_t MeasuredRun::unforeseen() const {
  std::size_t sum = 0;
  for (const execute::Deviation& deviation : deviations)
    sum += deviation.unforeseen + deviation.unasked;
  return sum;
}

Result<MeasuredRun> run_planned(PreparedStep& prepared, const session::PlannedStep& planned,
                                const RunOptions& options) {
  REGEN_ASSIGN(const Bytes others, start_afresh(prepared));
  REGEN_ASSIGN(session::CompiledStep step, compile(prepared, planned, options.debug));
  execute::Executor& executor = step.executor();
  MeasuredRun measured;
  measured.arena_bytes = executor.arena_bytes();
  measured.host_bytes = executor.host_bytes();
  const auto run = [&](bool last) {
    executor.set_trace(options.trace && last);
    return step.run();
  };
  REGEN_TRY(measure(prepared, options, others, measured, run, [&] { executor.forget(); }));
  measured.trace = executor.take_trace();
  measured.deviations = executor.deviations();
  measured.left = left_behind(prepared, [&](std::size_t index) { return executor.result(index); });
  return measured;
}

Result<MeasuredRun> run_directly(PreparedStep& prepared, const RunOptions& options) {
  REGEN_ASSIGN(const Bytes others, start_afresh(prepared));
  REGEN_ASSIGN(const auto step, execute::DirectStep::make(prepared.program(), *prepared.data,
                                                          prepared.recorded.device()));
  MeasuredRun measured;
  REGEN_TRY(measure(
      prepared, options, others, measured, [&](bool) { return step->run(); },
      [&] { step->forget(); }));
  measured.left = left_behind(prepared, [&](std::size_t index) { return step->result(index); });
  return measured;
}

Result<execute::HostTime> host_time(PreparedStep& prepared, const session::PlannedStep& planned,
                                    std::int64_t steps) {
  REGEN_TRY(start_afresh(prepared));
  REGEN_ASSIGN(session::CompiledStep step, compile(prepared, planned, false));
  REGEN_TRY(step.run());
  step.executor().set_host_timing(true);
  std::vector<execute::HostTime> times;
  for (std::int64_t i = 0; i < steps; ++i) {
    step.executor().forget();
    prepared.device().synchronize();
    REGEN_TRY(step.run());
    times.push_back(step.executor().take_host_time());
  }
  prepared.device().synchronize();
  const auto middle = times.begin() + steps / 2;
  std::nth_element(times.begin(), middle, times.end(),
                   [](const execute::HostTime& a, const execute::HostTime& b) {
                     return a.seconds - a.call_seconds < b.seconds - b.call_seconds;
                   });
  return *middle;
}

Result<std::string> measured_trace(const PreparedStep& prepared, const Plan& plan,
                                   const std::vector<execute::StepTime>& times) {
  SimulateOptions options;
  options.record = true;
  options.link = prepared.recorded.link().known().value_or(Link{});
  REGEN_ASSIGN(Simulation timeline, simulate(prepared.graph(), plan, options));
  // A release, or a boundary, happens where the compute queue has got to.
  double clock = 0;
  auto time = times.begin();
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    StepRecord& record = timeline.records[s];
    record.start = record.end = clock;
    if (time == times.end() || time->step != s) continue;
    record.start = time->begin;
    record.end = time->end;
    if (plan.steps[s].kind() == StepKind::kCompute) clock = time->end;
    ++time;
  }
  timeline.cost = clock;
  return chrome_trace(prepared.graph(), plan, timeline, {.shortest_wait = kShortestWait});
}

}  // namespace regen::cli
