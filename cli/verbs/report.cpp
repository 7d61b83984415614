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
#include "regen/report/curve_file.h"
#include "regen/report/document.h"
#include "regen/report/export/pickle.h"
#include "regen/report/export/snapshot.h"
#include "regen/report/export/trace.h"
#include "regen/report/measured_file.h"
#include "regen/report/page.h"
#include "regen/search/services/plan_curve.h"

namespace regen::cli {
namespace {

// For all plans of the curve together, unless the user says otherwise.
constexpr double kCurveSeconds = 10;
// Of the files with a curve and with what was measured: thousands of rows.
constexpr std::size_t kMaxFactsFileBytes = std::size_t{1} << 24;
// Of the packing of each plan of the curve: a tenth of what a planner gives its result.
constexpr std::int64_t kCurvePackWork = 100'000;

struct ReportArguments {
  GraphArgument graph;
  std::string plan;
  std::string other;
  BudgetArgument budget;
  std::string output;
  std::string trace;
  std::string snapshot;
  bool curve = false;
  std::string curve_file;
  std::string measured_file;
  Limits limits;
  bool json = false;

  bool has_limits() const {
    const Limits none;
    return limits.work != none.work || limits.seconds != none.seconds;
  }
};

Status check(const ReportArguments& arguments) {
  if (arguments.output.empty() && !arguments.json) {
    return bad_input("report: neither --output nor --json, expected where it goes: -o report.html");
  }
  if (arguments.output == "-" && arguments.json) {
    return bad_input("--output - and --json: both go to standard output, expected one of them");
  }
  if (arguments.has_limits() && !arguments.curve) {
    return bad_input("--time-limit and --work-limit are for --curve, expected it beside them");
  }
  const char* of_one = !arguments.trace.empty()      ? "--trace"
                       : !arguments.snapshot.empty() ? "--snapshot"
                                                     : nullptr;
  if (of_one != nullptr && !arguments.other.empty()) {
    return bad_input(std::string(of_one) + ": two plans given, expected one: it shows one plan");
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

Result<std::vector<report::CurvePoint>> computed_curve(const ReportArguments& arguments,
                                                       const LoadedGraph& loaded) {
  const InterruptGuard guard;
  Limits limits = arguments.limits;
  limits.interrupt = guard.flag();
  if (!arguments.has_limits()) limits.seconds = kCurveSeconds;
  REGEN_ASSIGN(const search::Planner* planner, find_planner("auto"));
  const search::Problem problem{
      .graph = &loaded.graph, .link = loaded.link, .registry = &published::every_planner()};
  REGEN_ASSIGN(
      const search::PlanCurve curve,
      search::PlanCurve::make({&planner, 1}, problem, {.pack_work = kCurvePackWork}, limits));
  std::vector<report::CurvePoint> points;
  for (const search::Outcome& outcome : curve.plans()) {
    points.push_back({outcome.simulation.peak_bytes, outcome.simulation.cost, outcome.lower_bound});
  }
  return points;
}

Result<std::vector<report::CurvePoint>> curve_of(const ReportArguments& arguments,
                                                 const LoadedGraph& loaded) {
  if (arguments.curve) return computed_curve(arguments, loaded);
  if (arguments.curve_file.empty()) return std::vector<report::CurvePoint>();
  REGEN_ASSIGN(const std::string text, read_file(arguments.curve_file, kMaxFactsFileBytes));
  return report::read_curve(text, arguments.curve_file);
}

Result<report::Measured> measured_by(const ReportArguments& arguments) {
  if (arguments.measured_file.empty()) return report::Measured();
  REGEN_ASSIGN(const std::string text, read_file(arguments.measured_file, kMaxFactsFileBytes));
  return report::read_measured(text, arguments.measured_file);
}

// Whether a plan moves is checked before anything is searched or written.
Status check_moves(const LoadedPlans& plans, const LoadedGraph& loaded) {
  for (std::size_t i = 0; i < plans.plans.size(); ++i) {
    const auto simulation = simulate(loaded.graph, plans.plans[i], {.link = loaded.link});
    if (simulation.ok()) continue;
    Error error = in_file(plans.paths[i], simulation.error());
    if (!loaded.link.can_move()) error.message += ", expected --device NAME";
    return error;
  }
  return {};
}

Result<std::vector<report::Shown>> shown_plans(const ReportArguments& arguments,
                                               const LoadedGraph& loaded,
                                               const LoadedPlans& plans) {
  REGEN_ASSIGN(const std::optional<Bytes> budget, resolve_budget(arguments.budget, loaded));
  REGEN_ASSIGN(const report::Measured measured, measured_by(arguments));
  REGEN_TRY(check_moves(plans, loaded));
  REGEN_ASSIGN(const std::vector<report::CurvePoint> curve, curve_of(arguments, loaded));
  std::vector<report::Shown> shown;
  for (std::size_t i = 0; i < plans.plans.size(); ++i) {
    shown.push_back(
        {&plans.plans[i],
         {.title = plans.paths[i], .link = loaded.link, .budget = budget, .curve = curve}});
  }
  shown[0].facts.measured = measured;
  return shown;
}

// A file beside the page, and what goes into it.
struct Beside {
  std::string path;
  std::string content;
};

Result<std::vector<Beside>> files_beside(const ReportArguments& arguments,
                                         const LoadedGraph& loaded, const Plan& plan) {
  std::vector<Beside> files;
  if (!arguments.trace.empty()) {
    REGEN_ASSIGN(std::string trace, report::perfetto_trace(loaded.graph, plan, loaded.link));
    files.push_back({arguments.trace, std::move(trace)});
  }
  if (!arguments.snapshot.empty()) {
    REGEN_ASSIGN(const Json snapshot, report::memory_snapshot(loaded.graph, plan, loaded.link));
    files.push_back({arguments.snapshot, report::pickle(snapshot)});
  }
  return files;
}

// Everything is made before anything is written.
Status run_report(const ReportArguments& arguments) {
  REGEN_TRY(check(arguments));
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const LoadedPlans plans, load_plans(arguments, loaded.graph));
  REGEN_ASSIGN(const std::vector<report::Shown> shown, shown_plans(arguments, loaded, plans));
  const auto document = report::document(loaded.graph, shown, loaded.label);
  if (!document.ok()) return in_file(arguments.plan, document.error());
  REGEN_ASSIGN(const std::vector<Beside> files, files_beside(arguments, loaded, plans.plans[0]));
  if (!arguments.output.empty()) REGEN_TRY(write_file(arguments.output, report::page(*document)));
  for (const Beside& file : files) REGEN_TRY(write_file(file.path, file.content));
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
  CLI::Option* curve = verb.add_flag("--curve", arguments->curve,
                                     "Compute what more memory would buy: plans over all budgets");
  verb.add_option("--curve-file", arguments->curve_file,
                  "The same from a file: what regen advise --json printed")
      ->type_name("FILE")
      ->excludes(curve);
  verb.add_option("--measured", arguments->measured_file,
                  "What a run of PLAN has measured: what regen run --json printed")
      ->type_name("FILE");
  verb.add_option(
          "--trace", arguments->trace,
          "Write a timeline for Perfetto here, with modules and the memory by what it is for")
      ->type_name("FILE");
  verb.add_option("--snapshot", arguments->snapshot,
                  "Write a file here that PyTorch's memory viewer opens (pytorch.org/memory_viz)")
      ->type_name("FILE");
  add_limits(verb, arguments->limits);
  verb.get_option("--time-limit")->description("For --curve, all plans together (default 10)");
  verb.get_option("--work-limit")->description("For --curve, each plan: the same on every machine");
  add_json(verb, arguments->json);
  set_action<ReportArguments>(verb, action, arguments, run_report);
}

}  // namespace regen::cli
