// Plans that fit with their addresses: what an executor can run inside one arena.
#pragma once

#include <string_view>

#include "regen/planners/planner.h"

namespace regen {

struct AddressOptions {
  Bytes alignment = 1;
  std::int64_t pack_work = 1'000'000;  // for each packing; about a microsecond a unit
};

// As solve(), but the plan of the outcome has addresses, and its simulated peak counts them. Where
// the packing of a plan does not fit, the planner is asked again for a little less memory.
Result<Outcome> solve_addressed(std::string_view planner, const Problem& problem,
                                const AddressOptions& options, const Limits& limits = {});

// The smallest budget that the planner is seen to meet with addresses: bisection between the
// structural bound and the memory of keeping everything, to within a hundredth of the span. Where
// ops have several algorithms, the smallest are taken.
Result<Outcome> least_budget(std::string_view planner, Problem problem,
                             const AddressOptions& options, const Limits& limits = {});

}  // namespace regen
