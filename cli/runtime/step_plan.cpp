#include "cli/runtime/step_plan.h"

#include <string>
#include <utility>
#include <vector>

#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/options/planners.h"
#include "regen/session/budget.h"
#include "regen/session/state/plan_search.h"

namespace regen::cli {
namespace {

Result<std::optional<Bytes>> resolve_budget(const PreparedStep& prepared,
                                            const PlanArgument& argument) {
  if (!argument.budget) return std::optional<Bytes>();
  const auto budget = session::Budget::parse(*argument.budget);
  if (!budget.ok()) return bad_input("--budget: " + budget.error().message);
  REGEN_ASSIGN(const Bytes bytes,
               budget->bytes(prepared.recorded.unplanned_bytes(), prepared.device()));
  return std::optional(bytes);
}

// A plan from a file; it gets addresses here if it has none.
Result<StepPlan> given_plan(const PreparedStep& prepared, const PlanArgument& argument,
                            std::optional<Bytes> budget) {
  REGEN_ASSIGN(Plan plan, load_plan(argument.file, prepared.graph()));
  const session::PlanOrigin origin{.planner = plan.planner};
  auto accepted = prepared.recorded.accept(std::move(plan), origin);
  if (!accepted.ok()) return in_file(argument.file, accepted.error());
  if (budget && accepted->peak_bytes() > *budget) {
    return bad_input(argument.file + ": takes " + format_grouped(accepted->peak_bytes()) +
                     " bytes, expected at most the budget of " + format_grouped(*budget));
  }
  return StepPlan{std::move(*accepted), "given", budget};
}

Result<session::PlanRequest> plan_request(const PlanArgument& argument,
                                          std::optional<Bytes> budget) {
  session::PlanRequest request;
  std::vector<std::string> names{argument.planner};
  // Keeping everything needs no link, which takes time to measure.
  if (argument.planner == "auto") names = {"keep_all", "auto"};
  request.registry = &published::every_planner();
  REGEN_ASSIGN(request.planners, request.registry->find_all(names));
  request.budget = budget;
  request.host_budget = argument.host_budget;
  request.limits = request.least_limits = argument.limits;
  request.names_planner = true;
  return request;
}

Result<StepPlan> search_plan(const PreparedStep& prepared, const PlanArgument& argument,
                             std::optional<Bytes> budget) {
  REGEN_ASSIGN(const session::PlanRequest request, plan_request(argument, budget));
  REGEN_ASSIGN(session::Planning planning, session::find_plan(prepared.recorded, request));
  if (std::holds_alternative<session::Refusal>(planning)) {
    return to_error(std::get<session::Refusal>(planning));
  }
  session::PlannedStep step = std::get<session::PlannedStep>(std::move(planning));
  const std::string status(to_string(step.report().origin.status));
  return StepPlan{std::move(step), status, budget};
}

}  // namespace

void add_plan_arguments(CLI::App& verb, PlanArgument& argument) {
  CLI::Option* file =
      verb.add_option("PLAN", argument.file, "A plan for it (default: one is found)")
          ->type_name("");
  verb.add_option(
          "--budget", argument.budget,
          "Device bytes, everything counted: 8GiB, 16e9, 50% of what keeping all takes, or device")
      ->type_name("BYTES");
  add_parsed(verb, "--host-budget", argument.host_budget, parse_bytes, "BYTES",
             "Host bytes for moved tensors");
  verb.add_option("--planner", argument.planner, "The planner (default auto)")
      ->type_name("NAME")
      ->excludes(file);
  add_limits(verb, argument.limits);
}

Status check_planner(const PlanArgument& argument) {
  if (argument.planner == "auto") return {};
  const auto entry = find_planner(argument.planner);
  return entry.ok() ? Status() : Status(entry.error());
}

Result<StepPlan> find_step_plan(const PreparedStep& prepared, const PlanArgument& argument) {
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(prepared, argument));
  if (!argument.file.empty()) return given_plan(prepared, argument, budget);
  return search_plan(prepared, argument, budget);
}

Result<StepPlan> keep_all_plan(const PreparedStep& prepared) {
  PlanArgument argument;
  argument.planner = "keep_all";
  return search_plan(prepared, argument, std::nullopt);
}

}  // namespace regen::cli
