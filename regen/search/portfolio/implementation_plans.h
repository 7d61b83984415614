// The best plan over the implementations that ops can take (implementation_choice.h): those that
// all other planners take, those that quick plans prefer, and those of `monet`.
#pragma once

#include <functional>

#include "regen/search/planner.h"

namespace regen::search {

// Plans a graph in which every op has one implementation.
using PlanOneImplementation = std::function<Result<Proposal>(const Problem& problem, Effort&)>;

// The problem must have a budget. The bound is about all variants, also those of different runs.
Result<Proposal> plan_implementations(const Problem& problem, Effort& effort,
                                      const PlanOneImplementation& plan);

}  // namespace regen::search
