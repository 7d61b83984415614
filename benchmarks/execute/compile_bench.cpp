// From a plan to instructions: how long a user waits for a large step after it has been planned.
#include <benchmark/benchmark.h>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/run/executor.h"
#include "regen/search/registry.h"
#include "regen/search/services/addressed_plan.h"
#include "tests/execute/small_program.h"

namespace regen {
namespace {

constexpr Link kLink{1e9, 1e9, 2e9};

// The argument is the number of layers; the counter says how many steps the plan has.
void BM_Compile(benchmark::State& state) {
  const execute::Program program =
      execute::make_chain({.layers = static_cast<std::size_t>(state.range(0)), .width = 8});
  const std::shared_ptr<execute::CpuDevice> device = execute::make_cpu_device({});
  const auto recording = std::make_shared<const execute::Recording>(
      *execute::record(program, *device, {.repeats = 1}));
  const auto step = std::make_shared<const execute::StepGraph>(
      *execute::make_step_graph(*recording, {.alignment = device->alignment()}));
  const search::Problem problem{.graph = &step->graph, .link = kLink};
  const search::Outcome outcome = *search::solve_addressed(
      search::own_planner("keep_all"), problem, {.alignment = device->alignment()}, {.seconds = 1});
  for (auto _ : state) {
    auto executor =
        execute::Executor::compile(recording, step, *outcome.plan, device, {.reserve = 1 << 14});
    if (!executor.ok()) state.SkipWithError(executor.error().message.c_str());
    benchmark::DoNotOptimize(executor);
  }
  state.counters["steps"] = static_cast<double>(outcome.plan->steps.size());
}
BENCHMARK(BM_Compile)->Arg(250)->Arg(1430)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace regen
