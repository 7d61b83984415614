// `auto` around a choice that search/ does not make by itself.
#pragma once

#include <functional>
#include <optional>

#include "regen/search/planner.h"

namespace regen::search {

// Plans a graph in its own order, with no choice but among variants that differ in cost and
// workspace.
using PlanAsItIs = std::function<Result<Proposal>(const Problem& problem, Effort& effort)>;

// Plans a problem with a budget over further choices, each of which it has planned by `plan`.
// Nothing: the graph has no such choice.
using PlanOverChoices = std::function<Result<std::optional<Proposal>>(
    const Problem& problem, Effort& effort, const PlanAsItIs& plan)>;

// As `auto`, with `choices` for each order of the graph; an empty function has none.
Result<Proposal> plan_auto_over(const Problem& problem, Effort& effort,
                                const PlanOverChoices& choices);

}  // namespace regen::search
