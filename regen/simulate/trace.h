// A simulated plan as a timeline for ui.perfetto.dev or chrome://tracing (Trace Event Format).
#pragma once

#include <string>
#include <vector>

#include "regen/graph/graph.h"
#include "regen/plan/plan.h"
#include "regen/simulate/simulate.h"

namespace regen {

// A part of the bytes on the device, for each step.
struct TraceSeries {
  std::string name;
  std::vector<Bytes> bytes;  // at least one for each step
};

struct TraceOptions {
  // Shorter gaps in the compute queue are not shown as waits. A real queue has gaps that no copy
  // is to blame for.
  double shortest_wait = 0;
  // Written beside each op, if there is one for each; empty: not.
  std::vector<std::string> modules = {};
  // One more counter, whose parts stand on top of each other; empty: none.
  std::vector<TraceSeries> series = {};
};

// One process with three threads, `compute`, `to host` and `to device`, and a counter each for
// the bytes on the device and on the host:
//
//   compute     an event for every compute step, and one named `wait` where the queue stands
//               still until a copy has ended
//   to host,    an event for every copy, while it moves
//   to device
//   counters    what each step takes, at the time at which the compute queue reaches the step
//
// Seconds become microseconds. Costs in flop, or beyond a million seconds, are scaled by a power of
// ten to a step of 1 to 10 seconds; `otherData.microseconds_per_unit` has the factor.
//
// The simulation must be of this graph and plan, with SimulateOptions::record; without records
// the timeline is empty.
std::string chrome_trace(const Graph& graph, const Plan& plan, const Simulation& simulation,
                         const TraceOptions& options = {});

}  // namespace regen
