// regen report: what a plan does as one HTML file, or its data as JSON.
#include <optional>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/options/planners.h"
#include "cli/output/output.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/report/document.h"
#include "regen/report/page.h"

namespace regen::cli {
namespace {

struct ReportArguments {
  GraphArgument graph;
  std::string plan;
  std::string other;
  BudgetArgument budget;
  std::string output;
  bool json = false;
};

Status check(const ReportArguments& arguments) {
  if (arguments.output.empty() && !arguments.json) {
    return bad_input("report: neither --output nor --json, expected where it goes: -o report.html");
  }
  return {};
}

// The plans of the call, and where they come from.
struct LoadedPlans {
  std::vector<Plan> plans;
  std::vector<std::string> paths;
};

Result<LoadedPlans> load_plans(const ReportArguments& arguments, const Graph& graph) {
  LoadedPlans loaded;
  for (const std::string& path : {arguments.plan, arguments.other}) {
    if (path.empty()) continue;
    REGEN_ASSIGN(Plan plan, load_valid_plan(path, graph));
    loaded.plans.push_back(std::move(plan));
    loaded.paths.push_back(path);
  }
  return loaded;
}

Status run_report(const ReportArguments& arguments) {
  REGEN_TRY(check(arguments));
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(arguments.budget, loaded));
  REGEN_ASSIGN(const LoadedPlans plans, load_plans(arguments, loaded.graph));
  std::vector<report::Shown> shown;
  for (std::size_t i = 0; i < plans.plans.size(); ++i) {
    shown.push_back(
        {&plans.plans[i], {.title = plans.paths[i], .link = loaded.link, .budget = budget}});
  }
  auto document = report::document(loaded.graph, shown, loaded.label);
  if (!document.ok()) return in_file(arguments.plan, document.error());
  if (!arguments.output.empty()) REGEN_TRY(write_file(arguments.output, report::page(*document)));
  return arguments.json ? print_json(*document) : Status();
}

}  // namespace

void add_report(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "report", "Show what a plan does as one HTML page",
                            "  regen report zoo:vgg19@64 plan.json --budget 6GiB -o report.html\n"
                            "  regen report zoo:vgg19@64 plan.json other.json -o both.html");
  auto arguments = std::make_shared<ReportArguments>();
  add_graph(verb, arguments->graph);
  verb.add_option("PLAN", arguments->plan, "A plan file")->required()->type_name("");
  verb.add_option("OTHER", arguments->other, "Another plan of the graph, shown beside it")
      ->type_name("");
  add_budget(verb, arguments->budget);
  verb.remove_option(verb.get_option("--host-budget"));
  add_output(verb, arguments->output,
             "The page: one file without links to others; - is standard output");
  add_json(verb, arguments->json);
  set_action<ReportArguments>(verb, action, arguments, run_report);
}

}  // namespace regen::cli
