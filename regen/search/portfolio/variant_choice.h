// Which of the ways that differ in cost and workspace alone each op takes, where planners take one
// way only: a choice is made for all ops, and the graph with just that is planned.
#pragma once

#include <functional>
#include <vector>

#include "regen/search/build/variant_view.h"
#include "regen/search/planner.h"

namespace regen::search {

// Ops that are decided together: the members of a choice group, or one op by itself.
struct VariantDecision {
  std::vector<OpId> ops;
  // By choice, the variant of each op, in the order of `ops`; there are at least two choices.
  std::vector<std::vector<VariantId>> choices;
};

// All that there is to decide; empty when every op has one way only.
std::vector<VariantDecision> variant_decisions(const Graph& graph);

// The fastest choice that gives each op at most the workspace it is allowed, or, where there is
// none, the one that exceeds it least.
std::size_t fastest_within(const Graph& graph, const VariantDecision& decision,
                           const std::function<Bytes(OpId)>& allowed);

// Every op with as little workspace as its group can do with.
IdVector<OpId, VariantId> smallest_choice(const Graph& graph);

// The choice for a problem with a budget, judged by quick plans: the fastest within a cap, the same
// for all ops, that a plan says is best; then faster ones wherever that plan has room; then one
// decision after the other changed for the better.
Result<VariantView> choose_variants(const Problem& problem, Effort& effort);

using PlanOneChoice = std::function<Result<Proposal>(const Problem& problem, Effort& effort)>;

// Whether there are few enough choices, on a graph small enough, to plan each of them.
bool few_choices(const Graph& graph);
// The best plan over all choices. Bound and status are about all of them.
Result<Proposal> plan_every_choice(const Problem& problem, Effort& effort,
                                   const PlanOneChoice& plan);

}  // namespace regen::search
