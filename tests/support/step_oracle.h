// Exhaustive search over the step lists of tiny graphs: every compute, offload, release and fetch
// at every place, as docs/plan-semantics.md defines them, as long as first runs follow the order of
// the graph. It shares no code with the planners. Copies may join their queues at any time; values
// may leave at any time too or, for larger graphs, only when their bytes are wanted, which is never
// worse: a release waits for a copy, later ones for less of it.
#pragma once

#include <optional>

#include "regen/cost/device.h"
#include "regen/graph/graph.h"

namespace regen::testing {

struct StepLimits {
  Bytes budget = 0;                  // without the fixed bytes
  std::optional<Bytes> host_budget;  // absent: no limit
  Link link;                         // without a joint limit
  bool gradients_again = true;       // may ops after the forward pass run again?
  bool late_releases = false;        // only what is wanted right then leaves
};

struct StepOptimum {
  bool complete = false;       // false: more than `most_states` states
  std::optional<double> cost;  // of the cheapest list; nothing if there is none below the cutoff
  std::size_t states = 0;
};

// Graphs of at most 31 ops, each with one output and one variant. Only lists that cost less than
// `cutoff` are looked for.
StepOptimum cheapest_step_list(const Graph& graph, const StepLimits& limits, double cutoff,
                               std::size_t most_states);

}  // namespace regen::testing
