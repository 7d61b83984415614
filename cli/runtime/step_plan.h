// The plan that a verb runs: a given one, or one that is found within a budget.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/runtime/prepared_step.h"
#include "regen/base/limit.h"
#include "regen/session/state/planned_step.h"

namespace regen::cli {

struct PlanArgument {
  std::string file;                   // empty: find one
  std::optional<std::string> budget;  // as session::Budget::parse reads it
  std::optional<Bytes> host_budget;
  std::string planner = "auto";
  Limits limits{.seconds = 20};
};

void add_plan_arguments(CLI::App& verb, PlanArgument& argument);

// Refuses a planner that there is not, before anything slow is done.
Status check_planner(const PlanArgument& argument);

struct StepPlan {
  session::PlannedStep step;
  std::string status;  // of the search, or "given"
  std::optional<Bytes> budget;

  const Plan& plan() const { return step.plan(); }
  const Simulation& simulation() const { return step.simulation(); }
};

// A budget that nothing fits is refused with the reason and the least budget that is known to work.
Result<StepPlan> find_step_plan(const PreparedStep& prepared, const PlanArgument& argument);

// Everything computed once and kept, whatever it takes.
Result<StepPlan> keep_all_plan(const PreparedStep& prepared);

}  // namespace regen::cli
