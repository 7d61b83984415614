#include "tests/support/planners/planners_by_name.h"

#include "regen/published/planner_list.h"

namespace regen::search {
namespace {

Problem with_registry(Problem problem) {
  problem.registry = &published::every_planner();
  return problem;
}

}  // namespace

Result<Outcome> solve(std::string_view planner, Problem problem, const Limits& limits) {
  REGEN_ASSIGN(const Planner* found, published::every_planner().find(planner));
  return solve(*found, with_registry(std::move(problem)), limits);
}

Result<Outcome> solve_addressed(std::string_view planner, Problem problem,
                                const AddressOptions& options, const Limits& limits) {
  REGEN_ASSIGN(const Planner* found, published::every_planner().find(planner));
  return solve_addressed(*found, with_registry(std::move(problem)), options, limits);
}

Result<Outcome> least_budget(std::string_view planner, Problem problem,
                             const AddressOptions& options, const Limits& limits) {
  REGEN_ASSIGN(const Planner* found, published::every_planner().find(planner));
  return least_budget(*found, with_registry(std::move(problem)), options, limits);
}

Result<MaxBatchAnswer> max_batch(std::string_view planner, const MaxBatchProblem& problem) {
  REGEN_ASSIGN(const Planner* found, published::every_planner().find(planner));
  return max_batch(*found, problem);
}

Result<std::vector<LargestBatch>> largest_batches(std::string_view planner,
                                                  const BatchCurveProblem& problem,
                                                  std::span<const BatchBudget> budgets) {
  REGEN_ASSIGN(const Planner* found, published::every_planner().find(planner));
  return largest_batches(*found, problem, budgets);
}

const Planner& planner_named(std::string_view name) {
  return *published::every_planner().find(name).value();
}

std::vector<const Planner*> planners_named(std::initializer_list<std::string_view> names) {
  std::vector<const Planner*> found;
  for (const std::string_view name : names) found.push_back(&planner_named(name));
  return found;
}

}  // namespace regen::search
