// What is known of a plan, as a struct: what the judge and the validator say of it, what the search
// that found it knew, and, of a running step, what was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "regen/base/units.h"
#include "regen/plan/plan.h"
#include "regen/search/judge.h"
#include "regen/simulate/simulate.h"

namespace regen::session {

// A plan that a search beside the training has put in place of an earlier one.
struct Improvement {
  std::optional<std::int64_t> before_step;  // absent: in an earlier process
  double search_seconds = 0;
  double earlier_cost = 0;  // of the plan that it replaced

  bool operator==(const Improvement&) const = default;
};

// What only the search that made a plan knows. It travels with a stored plan and is a statement of
// that search: nothing that decides whether a plan may run is in here.
struct PlanOrigin {
  std::string planner;
  search::PlanStatus status = search::PlanStatus::kFeasible;
  double lower_bound = 0;
  double seconds = 0;
  std::int64_t work = 0;
  std::string note;
  double searched = 0;  // seconds of search beside the training that were spent on improving it
  std::optional<Improvement> improvement;

  bool operator==(const PlanOrigin&) const = default;
};

PlanOrigin origin_of(const search::Outcome& outcome);

// Planned tensors on the device when the backward pass begins.
struct KeptTensors {
  std::size_t count = 0;
  Bytes bytes = 0;

  bool operator==(const KeptTensors&) const = default;
};

struct PlanReport {
  PlanOrigin origin;
  double cost = 0;         // seconds, as simulated
  double base_cost = 0;    // of every op once
  double overhead = 0;     // cost over base_cost, less one
  double lower_bound = 0;  // proven; at least the trivial one and at most the cost
  double gap = 0;
  Bytes peak_bytes = 0;  // with fixed ones and addresses
  Bytes live_bytes = 0;  // the highest sum of what lives at once, whatever the addresses are
  Bytes host_peak_bytes = 0;
  Bytes offloaded_bytes = 0;
  std::size_t recomputed = 0;
  std::size_t steps = 0;
  std::size_t other_algorithms = 0;  // ops that run by another algorithm than by default
  std::size_t in_place = 0;          // ops that write over what they read last
  std::optional<KeptTensors> kept;   // absent without a backward pass

  bool operator==(const PlanReport&) const = default;

  // No plan is cheaper, up to rounding.
  bool proven_best() const;
};

// Of a valid plan. The bound of the origin counts as far as the judge allows it: it cannot exceed
// the cost.
PlanReport make_report(const Graph& graph, const Plan& plan, const Simulation& simulation,
                       const PlanOrigin& origin);

// What makes two plans the same for a job: bytes, time and what is done.
bool same_work(const PlanReport& one, const PlanReport& other);

// Of a step that is compiled.
struct MemoryReport {
  Bytes arena_bytes = 0;
  Bytes host_bytes = 0;
  Bytes saved_state_bytes = 0;  // of generators and of what a step changes, to repeat and undo it
  std::size_t captured = 0;     // stretches that are launched as a whole
  Bytes captured_bytes = 0;
  std::size_t unforeseen = 0;    // allocations that were not as recorded
  std::string unforeseen_nodes;  // their names

  bool operator==(const MemoryReport&) const = default;
};

// All that there is to say of a step under a plan.
struct RunReport {
  PlanReport plan;
  std::optional<Bytes> budget;  // with what the caller holds
  Bytes caller_bytes = 0;
  Bytes unplanned_bytes = 0;  // these two without it
  Bytes bound_bytes = 0;
  bool searching = false;  // for a better plan, beside the training
  std::optional<MemoryReport> memory;
  std::optional<Bytes> measured_peak;
  std::optional<double> measured_seconds;
};

// For people, in about ten lines.
std::string to_text(const RunReport& report);

}  // namespace regen::session
