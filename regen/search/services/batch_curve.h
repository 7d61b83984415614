// The largest batch that a planner trains at each of several budgets, by few plans: what a step
// needs for each sample hardly depends on the batch, so that the answer at one budget says where to
// look at the next.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "regen/search/services/max_batch.h"

namespace regen::search {

struct BatchCurveProblem {
  GraphAtBatch graph_at;
  std::int64_t batch = 1;  // of the step that the budgets are about
  Link link;
  PlannerOptions options;
  Limits limits;                  // of each plan
  std::int64_t most_solves = 12;  // plans tried at each budget
};

struct BatchBudget {
  Bytes bytes = 0;
  bool fits = false;  // known: the batch of the problem does, within the cap on recomputation
};

struct LargestBatch {
  std::int64_t batch = 0;  // 0: none was found
  bool settled = false;    // the next batch was tried too, and did not fit
};

// As max_batch() counts: plans within the budget that cost at most one forward pass more than
// keeping everything. `budgets` ascend. The same counted work gives the same answers.
Result<std::vector<LargestBatch>> largest_batches(const Planner& planner,
                                                  const BatchCurveProblem& problem,
                                                  std::span<const BatchBudget> budgets);

// Whether the plan costs at most one forward pass more than keeping everything.
bool within_one_forward_pass(const Graph& graph, double cost);

}  // namespace regen::search
