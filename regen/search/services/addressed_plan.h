// Plans that fit with their addresses: what an executor can run inside one arena.
#pragma once

#include <functional>
#include <span>

#include "regen/search/judge.h"

namespace regen::search {

struct AddressOptions {
  Bytes alignment = 1;
  std::int64_t pack_work = 1'000'000;  // for each packing, at most; about a microsecond a unit
};

// As solve(), but the plan of the outcome has addresses, and its simulated peak counts them. Where
// the packing of a plan does not fit, the planner is asked again for a little less memory.
Result<Outcome> solve_addressed(const Planner& planner, const Problem& problem,
                                const AddressOptions& options, const Limits& limits = {});

// The cheapest plan of any of the planners, each within the limits. If `keep_all` fits, the
// planners after it are not run.
Result<Outcome> best_addressed(std::span<const Planner* const> planners, const Problem& problem,
                               const AddressOptions& options, const Limits& limits = {});
// The same with a problem for each planner, asked for before it is run.
using ProblemFor = std::function<Result<Problem>(const Planner& planner)>;
Result<Outcome> best_addressed(std::span<const Planner* const> planners,
                               const ProblemFor& problem_for, const AddressOptions& options,
                               const Limits& limits = {});

// True for an outcome whose plan may be used.
bool has_plan(const Outcome& outcome);

}  // namespace regen::search
