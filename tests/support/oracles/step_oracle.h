// Exhaustive search over the step lists of tiny graphs: every compute, offload, release and fetch
// at every place, as docs/reference/plan-semantics.md defines them, as long as first runs follow
// the order of the graph. It shares no code with the planners. For larger graphs two kinds of lists
// can be left out, for each of which some other list is as good:
//   - a value leaves before its bytes are wanted: a later release waits for less of a copy;
//   - a copy joins its queue before the step during which it starts: it can as well join later.
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
  bool only_late = false;            // leave out the lists above
};

struct StepOptimum {
  bool complete = false;       // false: too much for `most_work`
  std::optional<double> cost;  // of the cheapest list; nothing if there is none below the cutoff
};

// Graphs of at most 32 values, whose ops have one variant each. Only lists that
// cost less than `cutoff` are looked for. Work is counted in states visited or compared.
StepOptimum cheapest_step_list(const Graph& graph, const StepLimits& limits, double cutoff,
                               std::size_t most_work);

}  // namespace regen::testing
