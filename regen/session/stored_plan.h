// A plan as text that travels: to the next process by a cache, to other ranks by a message. It
// carries what its search knew, and nothing that the reader can find out itself.
//
//   {"format": "regen-stored-plan", "version": 1, "key": "...",
//    "report": {"planner": "auto", "status": "feasible", "lower_bound": 0.01, ...},
//    "plan": {"format": "regen-plan", ...}}
#pragma once

#include <string>
#include <string_view>

#include "regen/base/result.h"
#include "regen/plan/plan.h"
#include "regen/session/report.h"

namespace regen::session {

struct StoredPlan {
  std::string key;  // what the plan depends on; empty: not said
  PlanOrigin origin;
  Plan plan;
};

std::string write_stored_plan(const PlanReport& report, const Plan& plan, std::string_view key);

// Only the form is checked; whether the plan may be used is for RecordedStep::accept to say.
Result<StoredPlan> read_stored_plan(std::string_view text, std::string_view source);

}  // namespace regen::session
