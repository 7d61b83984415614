// Which implementations (implementations.h) suit a budget, judged by quick plans.
#pragma once

#include "regen/published/implementations/implementations.h"
#include "regen/search/planner.h"

namespace regen::published {

// What a quick plan for the graph, with one implementation for each op, makes of the problem. Less
// is better: its cost, infinite without one, then the bytes that every plan takes.
struct QuickWorth {
  double cost = 0;
  Bytes bound = 0;

  auto operator<=>(const QuickWorth&) const = default;
};
QuickWorth quick_worth(const search::Problem& problem, const Graph& graph, Effort& effort);

// The choice for a problem with a budget, judged by quick plans: of several that weigh bytes kept
// for the backward pass against cost, then one op after the other changed for the better.
// `preferred` are variants, such as algorithms, that suit the budget.
Result<ChosenImplementations> choose_implementations(const search::Problem& problem,
                                                     const Implementations& all,
                                                     const IdVector<OpId, VariantId>& preferred,
                                                     Effort& effort);

}  // namespace regen::published
