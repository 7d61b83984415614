// The least memory that a step can be planned into.
#pragma once

#include <string_view>

#include "regen/search/services/addressed_plan.h"

namespace regen::search {

// The smallest budget that the planner is seen to meet with addresses, with the plan that meets it:
// bisection between the structural bound and the memory of keeping everything. Of the limits, the
// work is for each budget that is tried, the seconds are for the whole. With `auto`, planners that
// are good at small budgets go first, and it has to do better than they. Where ops have several
// algorithms, the smallest are taken.
//
// In the end the planner has refused the next smaller budget, too, unless the time was up.
Result<Outcome> least_budget(const Planner& planner, const Problem& problem,
                             const AddressOptions& options, const Limits& limits = {});

}  // namespace regen::search
