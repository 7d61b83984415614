// The least memory that a step can be planned into.
#pragma once

#include <string_view>

#include "regen/search/services/addressed_plan.h"

namespace regen::search {

// The smallest budget for which the planner found a plan with addresses, and that plan: bisection
// between the structural bound and the memory of keeping everything. The work limit applies to each
// budget that is tried, the seconds to the whole. With `auto`, planners that are good at small
// budgets run first; `auto` then searches below their result. Where ops have several algorithms,
// those with the least workspace are taken.
//
// At the end the planner has also failed at the next smaller budget, unless the time was up.
Result<Outcome> least_budget(const Planner& planner, const Problem& problem,
                             const AddressOptions& options, const Limits& limits = {});

}  // namespace regen::search
