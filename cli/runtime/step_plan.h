// The plan that a verb runs: a given one, or one that is found within a budget.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "cli/runtime/prepared_step.h"
#include "regen/base/limit.h"
#include "regen/plan/plan.h"
#include "regen/simulate/simulate.h"

namespace regen::cli {

struct PlanArgument {
  std::string file;                   // empty: find one
  std::optional<std::string> budget;  // a size, or "50%" of what keeping everything takes
  std::optional<Bytes> host_budget;
  std::string planner = "auto";
  Limits limits{.seconds = 20};
};

void add_plan_arguments(CLI::App& verb, PlanArgument& argument);

// Refuses a planner that there is not, before anything slow is done.
Status check_planner(const PlanArgument& argument);

// With addresses, and judged.
struct StepPlan {
  Plan plan;
  std::string status;  // of the search, or "given"
  Simulation simulation;
  std::optional<Bytes> budget;
};

// A budget that nothing fits is refused with the reason and the least budget that is known to work.
Result<StepPlan> find_step_plan(PreparedStep& prepared, const PlanArgument& argument);

// Everything computed once and kept, whatever it takes.
Result<StepPlan> keep_all_plan(PreparedStep& prepared);

}  // namespace regen::cli
