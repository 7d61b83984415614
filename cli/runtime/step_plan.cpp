#include "cli/runtime/step_plan.h"
#include "cli/planners.h"

#include <algorithm>
#include <vector>

#include "cli/options.h"
#include "cli/planner_options.h"
#include "cli/planners.h"
#include "regen/base/file.h"
#include "regen/graph/analysis.h"
#include "regen/plan/addresses.h"
#include "regen/plan/explain.h"
#include "regen/plan/plan_json.h"
#include "regen/plan/validate.h"
#include "regen/search/services/addressed_plan.h"
#include "regen/search/services/least_budget.h"

namespace regen::cli {
namespace {

bool moves_tensors(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const Step& step) { return step.kind() == StepKind::kOffload; });
}

Result<std::optional<Bytes>> resolve_budget(const PreparedStep& prepared,
                                            const PlanArgument& argument) {
  if (!argument.budget) return std::optional<Bytes>();
  std::string_view text = *argument.budget;
  if (text.ends_with('%')) {
    text.remove_suffix(1);
    const auto percent = parse_double(text);
    if (!percent.ok() || *percent < 0 || *percent > 1000) {
      return bad_input("--budget: bad share '" + *argument.budget + "', expected such as 50%");
    }
    const Bytes whole = live_bytes_keep_all(prepared.graph()).peak_bytes;
    return std::optional<Bytes>(static_cast<Bytes>(static_cast<double>(whole) * *percent / 100));
  }
  const auto bytes = parse_bytes(text);
  if (!bytes.ok()) return bad_input("--budget: " + bytes.error().message);
  return std::optional<Bytes>(*bytes);
}

Result<StepPlan> judged(PreparedStep& prepared, Plan plan, std::optional<Bytes> budget) {
  SimulateOptions options;
  if (moves_tensors(plan)) {
    REGEN_ASSIGN(options.link, link_of(prepared));
  }
  REGEN_ASSIGN(Simulation simulation, simulate(prepared.graph(), plan, options));
  return StepPlan{std::move(plan), "given", std::move(simulation), budget};
}

// A plan from a file; it gets addresses here if it has none.
Result<StepPlan> given_plan(PreparedStep& prepared, const PlanArgument& argument,
                            std::optional<Bytes> budget) {
  const Graph& graph = prepared.graph();
  REGEN_ASSIGN(Plan plan, load_valid_plan(argument.file, graph));
  if (!plan.addresses) {
    PackOptions options;
    options.alignment = prepared.device->alignment();
    auto addressed = with_addresses(graph, plan, options);
    if (!addressed.ok()) return in_file(argument.file, addressed.error());
    plan = std::move(addressed->plan);
  }
  REGEN_ASSIGN(StepPlan chosen, judged(prepared, std::move(plan), budget));
  if (budget && chosen.simulation.peak_bytes > *budget) {
    return bad_input(argument.file + ": takes " + format_grouped(chosen.simulation.peak_bytes) +
                     " bytes, expected at most the budget of " + format_grouped(*budget));
  }
  return chosen;
}

class PlanSearch {
 public:
  PlanSearch(PreparedStep& prepared, const PlanArgument& argument, std::optional<Bytes> budget)
      : prepared_(prepared), argument_(argument), budget_(budget) {
    names_ = {argument.planner};
    // Keeping everything needs no link, which takes time to measure.
    if (argument.planner == "auto") names_ = {"keep_all", "auto"};
  }

  Result<StepPlan> find() {
    search::Outcome last;
    for (const std::string& name : names_) {
      REGEN_ASSIGN(const search::Planner* planner, find_planner(name));
      REGEN_ASSIGN(const search::Problem problem, problem_for(name));
      REGEN_ASSIGN(last, search::solve_addressed(*planner, problem, addresses(), argument_.limits));
      if (search::has_plan(last)) return taken(last);
    }
    // A search for the cheapest plan may end without one where the search for the least budget
    // finds one.
    REGEN_ASSIGN(const std::optional<search::Outcome> least, least_outcome());
    if (least && least->simulation.peak_bytes <= budget_.value_or(kMaxBytes)) return taken(*least);
    return refusal(last, least);
  }

 private:
  search::AddressOptions addresses() const { return {.alignment = prepared_.device->alignment()}; }

  Result<search::Problem> problem_for(const std::string& name) {
    search::Problem problem{.graph = &prepared_.graph(), .budget = budget_};
    problem.host_budget = argument_.host_budget;
    problem.registry = &published::every_planner();
    if (name != "keep_all") {
      REGEN_ASSIGN(problem.link, link_of(prepared_));
    }
    return problem;
  }

  StepPlan taken(const search::Outcome& outcome) const {
    return {*outcome.plan, std::string(to_string(outcome.status)), outcome.simulation, budget_};
  }

  Error refusal(const search::Outcome& last, const std::optional<search::Outcome>& least) {
    const Bytes budget = budget_.value_or(kMaxBytes);
    const Infeasibility why = explain_infeasible(prepared_.graph(), budget);
    std::string message =
        why.proven ? why.message : "no plan was found (" + last.planner + "): " + why.message;
    if (least) {
      message += "; the least budget found to work is " +
                 format_grouped(least->simulation.peak_bytes) + " bytes";
    }
    const bool proven = why.proven || last.status == search::PlanStatus::kInfeasible;
    return proven ? infeasible(std::move(message)) : limit_reached(std::move(message));
  }

  Result<std::optional<search::Outcome>> least_outcome() {
    REGEN_ASSIGN(const search::Planner* planner, find_planner(argument_.planner));
    REGEN_ASSIGN(const search::Problem problem, problem_for(argument_.planner));
    REGEN_ASSIGN(search::Outcome outcome,
                 search::least_budget(*planner, problem, addresses(), argument_.limits));
    return search::has_plan(outcome) ? std::optional(std::move(outcome)) : std::nullopt;
  }

  PreparedStep& prepared_;
  const PlanArgument& argument_;
  std::optional<Bytes> budget_;
  std::vector<std::string> names_;
};

}  // namespace

void add_plan_arguments(CLI::App& verb, PlanArgument& argument) {
  CLI::Option* file =
      verb.add_option("PLAN", argument.file, "A plan for it (default: one is found)")
          ->type_name("");
  verb.add_option("--budget", argument.budget,
                  "Device bytes, everything counted: 8GiB, 16e9, or 50% of what keeping all takes")
      ->type_name("BYTES");
  add_parsed(verb, "--host-budget", argument.host_budget, parse_bytes, "BYTES",
             "Host bytes for moved tensors");
  verb.add_option("--planner", argument.planner, "Who plans (default auto)")
      ->type_name("NAME")
      ->excludes(file);
  add_limits(verb, argument.limits);
}

Status check_planner(const PlanArgument& argument) {
  if (argument.planner == "auto") return {};
  const auto entry = find_planner(argument.planner);
  return entry.ok() ? Status() : Status(entry.error());
}

Result<StepPlan> find_step_plan(PreparedStep& prepared, const PlanArgument& argument) {
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(prepared, argument));
  if (!argument.file.empty()) return given_plan(prepared, argument, budget);
  return PlanSearch(prepared, argument, budget).find();
}

Result<StepPlan> keep_all_plan(PreparedStep& prepared) {
  PlanArgument argument;
  argument.planner = "keep_all";
  return PlanSearch(prepared, argument, std::nullopt).find();
}

}  // namespace regen::cli
