// regen validate: is a plan allowed, and does it keep the budget?
#include <string>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/verbs/verbs.h"
#include "regen/plan/validate.h"

namespace regen::cli {
namespace {

struct ValidateArguments {
  GraphArgument graph;
  std::string plan;
  BudgetArgument budget;
  bool json = false;
};

Json accepted_json(const Validation& validation, const std::optional<Bytes>& budget) {
  return {{"valid", true},
          {"peak_bytes", validation.peak_bytes},
          {"activation_peak_bytes", validation.activation_peak_bytes},
          {"host_peak_bytes", validation.host_peak_bytes},
          {"peak_step", validation.peak_step},
          {"budget_bytes", budget ? Json(*budget) : Json(nullptr)}};
}

Status run_validate(const ValidateArguments& arguments) {
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const Plan plan, load_plan(arguments.plan, loaded.graph));
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(arguments.budget, loaded));
  const ValidationLimits limits{.budget = budget, .host_budget = arguments.budget.host};
  const auto validation = validate(loaded.graph, plan, limits);
  if (!validation.ok()) {
    if (arguments.json) {
      REGEN_TRY(print_json(Json{{"valid", false}, {"reason", validation.error().message}}));
    }
    return in_file(arguments.plan, validation.error());
  }
  if (arguments.json) return print_json(accepted_json(*validation, budget));
  return print("valid: " + std::to_string(plan.steps.size()) + " steps, peak " +
               full_bytes(validation->peak_bytes) + " at step " +
               std::to_string(validation->peak_step) +
               (budget ? ", budget " + full_bytes(*budget) : "") + "\n");
}

}  // namespace

void add_validate(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "validate", "Check that a plan is allowed and keeps its budget",
                            "  regen validate zoo:vgg19@64 plan.json --budget 6GiB");
  auto arguments = std::make_shared<ValidateArguments>();
  arguments->graph.adds_costs = false;
  add_graph(verb, arguments->graph);
  verb.add_option("PLAN", arguments->plan, "A plan file, or a folder of matrices")
      ->required()
      ->type_name("");
  add_budget(verb, arguments->budget);
  add_json(verb, arguments->json);
  set_action<ValidateArguments>(verb, action, arguments, run_validate);
}

}  // namespace regen::cli
