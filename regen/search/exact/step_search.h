// The cheapest step list of a small graph, by search over all of them: re-runs, offloads, fetches
// and releases at any place between the first runs, which follow the order of the graph.
//
// Partial lists are extended step by step, cheapest first. The cost of a part is the time at which
// its computes end plus the first runs to come. Three rules keep the number of parts small and lose
// no optimal list, because as long as the two directions of the link are independent, no copy and
// no compute ends later when everything before it ends earlier:
//
//   - a value leaves only when its bytes are needed, and no more values leave than necessary;
//   - a copy joins its queue right before the compute during which it starts, not earlier;
//   - of two parts with the same values on device and host, the one that is ahead in all its end
//     times dominates the other.
//
// The search gives a lower bound at any moment. A joint limit of the link is left out: with it the
// bound still holds, and the list found may cost more.
#pragma once

#include <optional>

#include "regen/search/exact/stage_problem.h"
#include "regen/search/planner.h"

namespace regen::search {

struct StepSearchAnswer {
  // No list that the problem allows costs less; infinite if there is none at all.
  double bound = 0;
  // A list that costs `bound`, less than the cutoff, on a link without a joint limit.
  std::optional<Plan> plan;
};

// Whether the search can take the problem: a budget, less than 64 ops, at most 64 values, and one
// variant for each op.
bool can_search_steps(const Problem& problem, const StageProblem& stages);

// Searches for lists that cost less than `cutoff`; stores at most `most_parts` partial lists.
StepSearchAnswer search_steps(const Problem& problem, const StageProblem& stages, double cutoff,
                              std::size_t most_parts, Effort& effort);

}  // namespace regen::search
