// One declaration for each planner of a paper; each is defined in the file of its name.
#pragma once

#include "regen/search/registry.h"

namespace regen::published {

Result<search::Proposal> plan_chen_sqrt(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_chen_sqrt_noap(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_griewank(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_last_node(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_superneurons(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_monet(const search::Problem& problem, Effort& effort);
// These three are in lower_sets/lower_sets.cpp.
Result<search::Proposal> plan_lower_sets(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_lower_sets_approx(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_chen_cuts(const search::Problem& problem, Effort& effort);
// The relaxations of checkmate and str: a bound alone, and rounded to plans.
Result<search::Proposal> plan_lp_bound(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_checkmate_lp(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_str_lp(const search::Problem& problem, Effort& effort);
// Planners of search/ that can also follow their paper to the letter, where the options ask for
// it: other schedules for checkmate, STR's own model; and `auto` with a choice among MONeT's
// implementations.
Result<search::Proposal> plan_auto(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_checkmate(const search::Problem& problem, Effort& effort);
Result<search::Proposal> plan_str(const search::Problem& problem, Effort& effort);

// Adds the planners above, replacing those of search/ that have the same names.
void register_published_planners(search::Registry& registry);

// The registry of the programs that offer every planner, of search/ and of this folder; made by the
// first call.
const search::Registry& every_planner();

}  // namespace regen::published
