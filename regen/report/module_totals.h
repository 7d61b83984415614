// What a plan does in each module, and what that adds to the time of the step.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "regen/report/boxes.h"
#include "regen/report/modules.h"
#include "regen/simulate/simulate.h"

namespace regen::report {

// All are with the modules below it, so that the row of the root is the whole step.
struct ModuleTotals {
  std::size_t ops = 0;
  Bytes parameter_bytes = 0;   // of fixed tensors that are trained
  Bytes kept_bytes = 0;        // on the device when the backward pass begins
  Bytes peak_bytes = 0;        // planned, on the device at the peak, workspace included
  std::size_t recomputed = 0;  // runs after the first of their op
  Bytes recomputed_bytes = 0;  // that these brought back
  Bytes moved_bytes = 0;       // to the host and back, both directions
  double cost = 0;             // of all runs
  // The makespan less the step with everything kept is their sum over the whole network.
  double recompute_cost = 0;
  double wait_cost = 0;     // of the compute queue for copies; at the end, of the step for the last
  double variant_cost = 0;  // of first runs in another variant than the default; may be below 0

  double added_cost() const { return recompute_cost + wait_cost + variant_cost; }
  void add(const ModuleTotals& other);

  bool operator==(const ModuleTotals&) const = default;
};

// The simulation must be of this graph and plan, with records.
IdVector<ModuleId, ModuleTotals> module_totals(const Graph& graph, const Plan& plan,
                                               const Simulation& simulation, const ModuleTree& tree,
                                               std::span<const Box> boxes);

// The step at which the forward pass is over: the first run of an op of the loss or the backward pass.
// The number of steps if there is none.
std::size_t backward_step(const Graph& graph, const Plan& plan);

}  // namespace regen::report
