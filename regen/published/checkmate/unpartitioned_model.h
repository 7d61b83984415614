// The unpartitioned model: as many stages as ops, any op may run in any of them, and only "every op
// runs" or "the last op runs" is required. It has the same optimum on a chain and a far weaker
// relaxation; it shows what one stage for each op is worth (docs/explanation/published.md).
#pragma once

#include <vector>

#include "regen/search/exact/linear_model.h"
#include "regen/search/planner.h"

namespace regen::published {

struct UnpartitionedAnswer {
  search::ModelStatus status = search::ModelStatus::kFailed;
  std::vector<OpId> sequence;  // empty: none known, or only the relaxation was asked for
  double bound = 0;            // in the graph's unit
};

// Graphs of at most 64 ops, each with one variant that overwrites nothing; `whole`: solve the
// integer model, otherwise its relaxation.
Result<UnpartitionedAnswer> solve_imposed(const search::Problem& problem, bool whole,
                                          Effort& effort);

}  // namespace regen::published
