// What it costs to serve an allocation at a planned address, beside torch's own allocator.
#include <benchmark/benchmark.h>
#include <c10/core/CPUAllocator.h>

#include <array>

#include "regen/execute/device/cpu/device_cpu.h"
#include "regen/execute/placement/placement.h"

namespace regen {
namespace {

void BM_PlainAllocation(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(c10::GetCPUAllocator()->allocate(256).get());
}
BENCHMARK(BM_PlainAllocation);

// One operator with so many allocations, freed at its end; the time is per allocation.
void BM_PlacedAllocation(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const auto device = execute::make_cpu_device();
  const auto arena = device->allocate_arena(256 * 16).value();
  std::vector<execute::PlacedSlot> slots;
  for (std::size_t i = 0; i < count; ++i)
    slots.push_back({256, arena.at(256 * static_cast<Bytes>(i))});
  std::vector<c10::DataPtr> held(count);
  execute::Reserve reserve;
  auto scope = execute::PlacementScope::enter(c10::kCPU, reserve).value();
  while (state.KeepRunningBatch(static_cast<std::int64_t>(count))) {
    scope.serve(slots, "op");
    for (auto& data : held) data = c10::GetCPUAllocator()->allocate(256);
    for (auto& data : held) data.clear();
    benchmark::DoNotOptimize(scope.finish());
  }
}
BENCHMARK(BM_PlacedAllocation)->Arg(1)->Arg(5)->Arg(15);

void BM_PassedOnAllocation(benchmark::State& state) {
  execute::Reserve reserve;
  auto scope = execute::PlacementScope::enter(c10::kCPU, reserve).value();
  for (auto _ : state) benchmark::DoNotOptimize(c10::GetCPUAllocator()->allocate(256).get());
}
BENCHMARK(BM_PassedOnAllocation);

void BM_EnterAndLeave(benchmark::State& state) {
  execute::Reserve reserve;
  for (auto _ : state)
    benchmark::DoNotOptimize(execute::PlacementScope::enter(c10::kCPU, reserve).ok());
}
BENCHMARK(BM_EnterAndLeave);

}  // namespace
}  // namespace regen
