// The best plan over the implementations that ops can take (implementations.h): those that
// all other planners take, those with the best quick plans, and those of `monet`.
#pragma once

#include "regen/search/portfolio/auto.h"

namespace regen::published {

// `plan` plans a graph in which every op has one implementation. The problem must have a budget. The
// bound is about all variants, also those of different runs.
Result<search::Proposal> plan_implementations(const search::Problem& problem, Effort& effort,
                                              const search::PlanAsItIs& plan);

}  // namespace regen::published
