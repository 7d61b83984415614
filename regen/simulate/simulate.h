// The judge: what a plan costs and how much memory it takes (docs/reference/plan-semantics.md).
#pragma once

#include <cstdint>
#include <vector>

#include "regen/base/result.h"
#include "regen/cost/device.h"
#include "regen/graph/graph.h"
#include "regen/plan/plan.h"

namespace regen {

struct SimulateOptions {
  Link link;            // in bytes per unit of the graph's cost
  bool record = false;  // fill Simulation::records
};

// One step on the timeline. For copies, start and end are when the copy moves; for a release
// both are the time at which it is done.
struct StepRecord {
  double start = 0;
  double end = 0;
  Bytes device_bytes = 0;  // fixed + live + workspace during the step
  Bytes host_bytes = 0;
};

struct Simulation {
  double cost = 0;          // makespan, stalls included, in the graph's unit
  double compute_cost = 0;  // sum over compute steps
  double stall = 0;         // what the compute queue waited for copies
  double overhead = 0;      // cost / graph.base_cost() - 1
  Bytes peak_bytes = 0;     // fixed bytes included
  Bytes activation_peak_bytes = 0;
  Bytes host_peak_bytes = 0;
  Bytes offloaded_bytes = 0;
  Bytes fetched_bytes = 0;
  std::size_t peak_step = 0;
  std::size_t recomputed = 0;  // compute steps beyond the first of their op
  std::vector<StepRecord> records;
};

// Refuses a plan whose steps have no meaning (an absent input, say), naming the first such
// step; it does not check everything that makes a plan valid: that is validate()'s work.
Result<Simulation> simulate(const Graph& graph, const Plan& plan,
                            const SimulateOptions& options = {});

}  // namespace regen
