// From a recorded step to a plan within a budget, or to a refusal.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "regen/base/limit.h"
#include "regen/search/registry.h"
#include "regen/session/state/planned_step.h"
#include "regen/session/state/refusal.h"

namespace regen::session {

struct PlanRequest {
  std::vector<const search::Planner*> planners;  // tried in this order; the cheapest plan is taken
  const search::Registry* registry = nullptr;    // as search::Problem::registry
  std::optional<Bytes> budget;                   // absent: no limit
  std::optional<Bytes> host_budget;
  Limits limits;               // for each planner
  Limits least_limits;         // for the search for the least budget
  bool names_planner = false;  // a refusal names the planner that gave up
};

using Planning = std::variant<PlannedStep, Refusal>;

// An error once the search was interrupted from outside (Ctrl-C): what it has found by then is not
// what it would have found, and is not to be kept.
Status expect_uninterrupted(const Limits& limits);

// Plans once. A search for the cheapest plan may end without one where the search for the least
// budget finds one: that plan is taken then.
Result<Planning> find_plan(const RecordedStep& recorded, const PlanRequest& request);

// The best that the planners find, without a second way out. Its outcome may have no plan.
Result<search::Outcome> search_plan(const RecordedStep& recorded, const PlanRequest& request);

// The plan of the least budget that any of the planners is known to meet. Searched for once in a
// process and remembered: a budget that a refusal has named must work when it is given, also where
// operators are measured again and a search would go another way.
Result<std::optional<PlannedStep>> least_plan(const RecordedStep& recorded,
                                              const PlanRequest& request);

// Keeping everything needs no link, which takes time to measure.
Result<Link> link_for(const RecordedStep& recorded, const search::Planner& planner);

}  // namespace regen::session
