// The services of search/ by a planner's name, among every planner of search/ and published/: tests
// compare many of them.
#pragma once

#include <string_view>

#include "regen/search/judge.h"
#include "regen/search/services/addressed_plan.h"
#include "regen/search/services/batch_curve.h"
#include "regen/search/services/least_budget.h"
#include "regen/search/services/max_batch.h"

namespace regen::search {

// `auto` may ask every planner, as in the programs.
Result<Outcome> solve(std::string_view planner, Problem problem, const Limits& limits = {});
Result<Outcome> solve_addressed(std::string_view planner, Problem problem,
                                const AddressOptions& options, const Limits& limits = {});
Result<Outcome> least_budget(std::string_view planner, Problem problem,
                             const AddressOptions& options, const Limits& limits = {});
Result<MaxBatchAnswer> max_batch(std::string_view planner, const MaxBatchProblem& problem);
Result<std::vector<LargestBatch>> largest_batches(std::string_view planner,
                                                  const BatchCurveProblem& problem,
                                                  std::span<const BatchBudget> budgets);

// Aborts when there is none of that name.
const Planner& planner_named(std::string_view name);
std::vector<const Planner*> planners_named(std::initializer_list<std::string_view> names);

}  // namespace regen::search
