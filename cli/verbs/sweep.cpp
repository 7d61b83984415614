// regen sweep: cost against budget for several planners.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/options/budget_range.h"
#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/options/planners.h"
#include "cli/output/output.h"
#include "cli/output/ratio_table.h"
#include "cli/output/sweep_points.h"
#include "cli/pictures/plotting.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/base/parallel.h"
#include "regen/base/progress/progress.h"
#include "regen/plan/explain.h"
#include "regen/search/judge.h"
#include "regen/search/registry.h"

namespace regen::cli {
namespace {

struct SweepArguments {
  GraphArgument graph;
  std::vector<std::string> planners{"keep_all", "chen_sqrt", "chen_greedy"};
  BudgetRange budgets;
  std::optional<BudgetRange> activation_budgets;
  PlannerArguments options;
  Limits limits;
  std::int64_t threads = 0;
  bool ratios = false;
  std::string reference = "checkmate";
  std::string output;
  std::string plot;
  bool json = false;
};

search::Problem problem_for(const SweepArguments& arguments, const LoadedGraph& loaded) {
  return {.graph = &loaded.graph,
          .link = loaded.link,
          .options = arguments.options.resolved(),
          .registry = &published::every_planner(),
          .ablation = &arguments.options.ablation};
}

// From what every plan needs to what keeping everything takes.
Result<std::vector<Bytes>> automatic_points(const SweepArguments& arguments,
                                            const LoadedGraph& loaded, std::int64_t count) {
  const Bytes low = structural_bound(loaded.graph).bytes;
  REGEN_ASSIGN(const search::Outcome keep_all,
               search::solve(search::own_planner("keep_all"), problem_for(arguments, loaded)));
  return even_points(low, std::max(low, keep_all.simulation.peak_bytes), count);
}

Result<std::vector<Bytes>> budget_points(const SweepArguments& arguments,
                                         const LoadedGraph& loaded) {
  const BudgetRange range = arguments.activation_budgets.value_or(arguments.budgets);
  if (range.automatic()) return automatic_points(arguments, loaded, range.count);
  const Bytes offset = arguments.activation_budgets ? loaded.graph.fixed_bytes() : 0;
  return range_points(range, loaded.graph, loaded.device ? &*loaded.device : nullptr, offset);
}

// By their names in the registry; ratios need the reference among them.
Result<std::vector<std::string>> planner_names(const SweepArguments& arguments) {
  std::vector<std::string> names;
  for (const std::string& name : arguments.planners) {
    REGEN_ASSIGN(const search::Planner* entry, find_planner(name));
    names.emplace_back(entry->name);
  }
  REGEN_TRY(arguments.options.check(names));
  if (!arguments.ratios) return names;
  REGEN_ASSIGN(const search::Planner* reference, find_planner(arguments.reference));
  if (std::find(names.begin(), names.end(), reference->name) == names.end()) {
    names.emplace_back(reference->name);
  }
  return names;
}

Status solve_point(const SweepArguments& arguments, const LoadedGraph& loaded, const Limits& limits,
                   SweepPoint& point) {
  search::Problem problem = problem_for(arguments, loaded);
  problem.budget = point.budget;
  point.begun = true;
  REGEN_ASSIGN(const search::Planner* planner, find_planner(point.planner));
  REGEN_ASSIGN(search::Outcome outcome, search::solve(*planner, problem, limits));
  point.status = outcome.status;
  point.simulation = std::move(outcome.simulation);
  point.lower_bound = outcome.lower_bound;
  point.bound_kind = outcome.bound_kind;
  point.gap = outcome.gap;
  point.seconds = outcome.seconds;
  point.note = std::move(outcome.note);
  return {};
}

// After Ctrl-C the points under way end with what they have and the others stay unknown.
Result<std::vector<SweepPoint>> solve_points(const SweepArguments& arguments,
                                             const LoadedGraph& loaded,
                                             const std::vector<Bytes>& budgets) {
  std::vector<SweepPoint> points;
  REGEN_ASSIGN(const std::vector<std::string> planners, planner_names(arguments));
  for (const std::string& planner : planners) {
    for (Bytes budget : budgets) points.push_back({.planner = planner, .budget = budget});
  }
  const InterruptGuard guard;
  Limits limits = arguments.limits;
  limits.interrupt = guard.flag();
  std::vector<Status> statuses(points.size());
  Progress progress({.stage = "sweep", .pieces = "points", .total = points.size()});
  parallel_for(points.size(), static_cast<int>(arguments.threads), [&](std::size_t i) {
    if (guard.interrupted()) {
      points[i].note = "interrupted";
      return;
    }
    statuses[i] = solve_point(arguments, loaded, limits, points[i]);
    progress.advance();
  });
  for (const Status& status : statuses) REGEN_TRY(status);
  return points;
}

Json plot_data(const LoadedGraph& loaded, const std::vector<SweepPoint>& points) {
  Json series = Json::array();
  const double base = loaded.graph.base_cost();
  for (const SweepPoint& point : points) {
    if (series.empty() || series.back()["planner"] != point.planner) {
      series.push_back({{"planner", point.planner}, {"points", Json::array()}});
    }
    if (!point.found()) continue;
    const double ratio = base > 0 ? point.simulation.cost / base : 1;
    series.back()["points"].push_back({point.simulation.peak_bytes, ratio});
  }
  Json data{{"title", loaded.label},
            {"fixed_bytes", loaded.graph.fixed_bytes()},
            {"bound_bytes", structural_bound(loaded.graph).bytes},
            {"series", std::move(series)}};
  if (loaded.device) {
    data["device"] = {{"name", loaded.device->name}, {"memory_bytes", loaded.device->memory_bytes}};
  }
  return data;
}

Status print_points(const SweepArguments& arguments, const std::vector<SweepPoint>& points) {
  std::vector<RatioRow> rows;
  std::string reference;
  if (arguments.ratios) {
    REGEN_ASSIGN(const search::Planner* entry, find_planner(arguments.reference));
    reference = entry->name;
    rows = ratio_rows(points, reference);
  }
  const bool to_file = !arguments.output.empty() && arguments.output != "-";
  if (!arguments.output.empty()) REGEN_TRY(write_file(arguments.output, sweep_csv(points)));
  if (arguments.json && arguments.output != "-") {
    if (!arguments.ratios) return print_json(sweep_json(points));
    return print_json({{"points", sweep_json(points)}, {"ratios", ratio_json(rows, reference)}});
  }
  if (arguments.output.empty()) REGEN_TRY(print(sweep_csv(points)));
  if (!arguments.ratios) return {};
  return print((to_file ? "" : "\n") + ratio_text(rows, reference));
}

// Some plans are an answer, though not the whole one; none at all is a limit that came first.
Status interrupted_verdict(const std::vector<SweepPoint>& points) {
  const auto missing = std::count_if(points.begin(), points.end(),
                                     [](const SweepPoint& point) { return !point.begun; });
  const bool any =
      std::any_of(points.begin(), points.end(), [](const SweepPoint& p) { return p.found(); });
  if (missing == 0) return {};
  const std::string text = "interrupted, " + std::to_string(missing) + " of " +
                           std::to_string(points.size()) + " points were not solved";
  if (!any) return limit_reached(text);
  warn(text);
  return {};
}

Status run_sweep(const SweepArguments& arguments) {
  std::string format;
  if (!arguments.plot.empty()) {
    REGEN_ASSIGN(format, picture_format(arguments.plot, {"png", "svg", "pdf", "html"}));
  }
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const std::vector<Bytes> budgets, budget_points(arguments, loaded));
  REGEN_ASSIGN(const std::vector<SweepPoint> points, solve_points(arguments, loaded, budgets));
  REGEN_TRY(print_points(arguments, points));
  if (!arguments.plot.empty()) {
    REGEN_TRY(draw_plot("sweep", plot_data(loaded, points), format, arguments.plot));
  }
  return interrupted_verdict(points);
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "sweep", "Cost against budget for several planners, as CSV and as a plot",
               "  regen sweep zoo:vgg16@256 --planners keep_all,chen_sqrt,chen_greedy --budgets "
               "12e9:24e9:25 --device v100-16 -o vgg16.csv --plot vgg16.png");
  auto arguments = std::make_shared<SweepArguments>();
  add_graph(verb, arguments->graph);
  add_parsed(verb, "--planners", arguments->planners, split_list, "P,..",
             "Planners to compare (default keep_all,chen_sqrt,chen_greedy)");
  CLI::Option* budgets =
      add_parsed(verb, "--budgets", arguments->budgets, parse_budget_range, "LO:HI:N",
                 "N budgets from LO to HI, a list B,B,.. or auto[:N] (default auto:20): from what "
                 "every plan needs to what keeping everything takes");
  add_parsed(verb, "--activation-budgets", arguments->activation_budgets, parse_budget_range,
             "LO:HI:N", "The same without the fixed bytes")
      ->excludes(budgets);
  verb.add_flag("--ratios", arguments->ratios,
                "Add a table: mean and maximum of each planner's cost over the optimum");
  verb.add_option("--reference", arguments->reference,
                  "Whose cost or bound the ratios are over (default checkmate)")
      ->type_name("PLANNER");
  add_planner_options(verb, arguments->options);
  add_limits(verb, arguments->limits);
  add_threads(verb, arguments->threads);
  add_output(verb, arguments->output, "Write the CSV here (default: standard output)");
  verb.add_option("--plot", arguments->plot,
                  "Draw cost ratio against peak GB: FILE.png, .svg, .pdf or .html")
      ->type_name("FILE");
  add_json(verb, arguments->json);
  set_action<SweepArguments>(verb, action, arguments, run_sweep);
}

}  // namespace regen::cli
