// regen sweep: cost against budget for several planners.
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/plotting.h"
#include "cli/verbs.h"
#include "regen/base/file.h"
#include "regen/base/parallel.h"
#include "regen/base/progress.h"
#include "regen/plan/explain.h"
#include "regen/planners/planner.h"
#include "regen/planners/registry.h"

namespace regen::cli {
namespace {

// LO:HI:N; without the ends they follow from the graph.
struct BudgetRange {
  std::optional<Bytes> low;
  std::optional<Bytes> high;
  std::int64_t count = 20;
};

struct Arguments {
  GraphArgument graph;
  std::vector<std::string> planners{"keep_all", "chen_sqrt", "chen_greedy"};
  BudgetRange budgets;
  std::optional<BudgetRange> activation_budgets;
  PlannerOptions options;
  SearchArgument search;
  std::int64_t threads = 0;
  std::string output;
  std::string plot;
  bool json = false;
};

// One planner at one budget. The plan itself is dropped: a thousand of them may not fit.
struct Point {
  std::string planner;
  Bytes budget = 0;
  PlanStatus status = PlanStatus::kUnknown;
  Simulation simulation;
  double seconds = 0;

  bool found() const { return status == PlanStatus::kOptimal || status == PlanStatus::kFeasible; }
};

Result<BudgetRange> parse_range(std::string_view text) {
  const Error error = bad_input("bad range '" + std::string(text.substr(0, 80)) +
                                "', expected LO:HI:N such as 2GiB:8GiB:13 with N from 2 to " +
                                "100000, or auto, or auto:N");
  BudgetRange range;
  const std::size_t last = text.rfind(':');
  if (last != std::string_view::npos) {
    const auto count = whole_number(2, 100'000)(text.substr(last + 1));
    if (!count.ok()) return error;
    range.count = *count;
  }
  const std::string_view ends = text.substr(0, last);
  if (ends == "auto") return range;
  const std::size_t middle = ends.find(':');
  if (last == std::string_view::npos || middle == std::string_view::npos) return error;
  REGEN_ASSIGN(range.low, parse_bytes(ends.substr(0, middle)));
  REGEN_ASSIGN(range.high, parse_bytes(ends.substr(middle + 1)));
  return *range.low <= *range.high ? Result<BudgetRange>(range) : error;
}

Problem problem_for(const Arguments& arguments, const LoadedGraph& loaded) {
  Problem problem{.graph = &loaded.graph, .link = loaded.link, .options = arguments.options};
  problem.options.seed = static_cast<std::uint64_t>(arguments.search.seed);
  return problem;
}

// From what every plan needs to what keeping everything takes.
Result<BudgetRange> automatic_range(const Arguments& arguments, const LoadedGraph& loaded,
                                    BudgetRange range) {
  range.low = structural_bound(loaded.graph).bytes;
  REGEN_ASSIGN(const Outcome keep_all, solve("keep_all", problem_for(arguments, loaded)));
  range.high = std::max(*range.low, keep_all.simulation.peak_bytes);
  return range;
}

Result<std::vector<Bytes>> budget_points(const Arguments& arguments, const LoadedGraph& loaded) {
  BudgetRange range = arguments.activation_budgets.value_or(arguments.budgets);
  const bool automatic = !range.low;
  if (automatic) {
    REGEN_ASSIGN(range, automatic_range(arguments, loaded, range));
  }
  const bool without_fixed = arguments.activation_budgets && !automatic;
  const Bytes offset = without_fixed ? loaded.graph.fixed_bytes() : 0;
  std::vector<Bytes> budgets;
  const double step =
      static_cast<double>(*range.high - *range.low) / static_cast<double>(range.count - 1);
  for (std::int64_t i = 0; i + 1 < range.count; ++i) {
    budgets.push_back(offset + *range.low + static_cast<Bytes>(step * static_cast<double>(i)));
  }
  budgets.push_back(offset + *range.high);
  return budgets;
}

Result<std::vector<Point>> solve_points(const Arguments& arguments, const LoadedGraph& loaded,
                                        const std::vector<Bytes>& budgets) {
  std::vector<Point> points;
  for (const std::string& name : arguments.planners) {
    REGEN_ASSIGN(const PlannerEntry* entry, find_planner(name));
    for (Bytes budget : budgets) points.push_back({std::string(entry->name), budget});
  }
  std::vector<std::optional<Error>> errors(points.size());
  Progress progress("sweep", points.size());
  parallel_for(points.size(), static_cast<int>(arguments.threads), [&](std::size_t i) {
    Problem problem = problem_for(arguments, loaded);
    problem.budget = points[i].budget;
    auto outcome = solve(points[i].planner, problem, arguments.search.limits);
    if (outcome.ok()) {
      points[i].status = outcome->status;
      points[i].simulation = std::move(outcome->simulation);
      points[i].seconds = outcome->seconds;
    } else {
      errors[i] = outcome.error();
    }
    progress.advance();
  });
  for (const auto& error : errors) {
    if (error) return *error;
  }
  return points;
}

std::string csv_row(const Point& point) {
  const Simulation& simulation = point.simulation;
  std::string row = point.planner + "," + std::to_string(point.budget) + "," +
                    std::string(to_string(point.status)) + ",";
  if (point.found()) {
    row += json_number(simulation.cost).dump() + "," + json_number(simulation.overhead).dump() +
           "," + std::to_string(simulation.peak_bytes) + "," +
           std::to_string(simulation.activation_peak_bytes);
  } else {
    row += ",,,";
  }
  row += "," + json_number(point.seconds).dump() + ",";
  return row + (point.found() ? std::to_string(simulation.recomputed) : "") + "\n";
}

std::string csv_text(const std::vector<Point>& points) {
  std::string text =
      "planner,budget_bytes,status,cost,overhead,peak_bytes,activation_peak_bytes,seconds,"
      "recomputed\n";
  for (const Point& point : points) text += csv_row(point);
  return text;
}

Json points_json(const std::vector<Point>& points) {
  Json array = Json::array();
  for (const Point& point : points) {
    Json row{{"planner", point.planner},
             {"budget_bytes", point.budget},
             {"status", to_string(point.status)},
             {"seconds", json_number(point.seconds)}};
    if (point.found()) {
      row["cost"] = json_number(point.simulation.cost);
      row["overhead"] = json_number(point.simulation.overhead);
      row["peak_bytes"] = point.simulation.peak_bytes;
      row["activation_peak_bytes"] = point.simulation.activation_peak_bytes;
      row["recomputed"] = point.simulation.recomputed;
    }
    array.push_back(std::move(row));
  }
  return array;
}

Json plot_data(const LoadedGraph& loaded, const std::vector<Point>& points) {
  Json series = Json::array();
  const double base = loaded.graph.base_cost();
  for (const Point& point : points) {
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

Status run_sweep(const Arguments& arguments) {
  std::string format;
  if (!arguments.plot.empty()) {
    REGEN_ASSIGN(format, picture_format(arguments.plot, {"png", "svg", "pdf", "html"}));
  }
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const std::vector<Bytes> budgets, budget_points(arguments, loaded));
  REGEN_ASSIGN(const std::vector<Point> points, solve_points(arguments, loaded, budgets));
  if (!arguments.output.empty()) REGEN_TRY(write_file(arguments.output, csv_text(points)));
  if (arguments.json && arguments.output != "-") {
    REGEN_TRY(print_json(points_json(points)));
  } else if (arguments.output.empty()) {
    REGEN_TRY(print(csv_text(points)));
  }
  if (arguments.plot.empty()) return {};
  return draw_plot("sweep", plot_data(loaded, points), format, arguments.plot);
}

}  // namespace

void add_sweep(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "sweep", "Cost against budget for several planners, as CSV and as a plot",
               "  regen sweep zoo:vgg16@256 --planners keep_all,chen_sqrt,chen_greedy --budgets "
               "12e9:24e9:25 --device v100-16 -o vgg16.csv --plot vgg16.png");
  auto arguments = std::make_shared<Arguments>();
  add_graph(verb, arguments->graph);
  add_parsed(verb, "--planners", arguments->planners, split_list, "P,..",
             "Planners to compare (default keep_all,chen_sqrt,chen_greedy)");
  CLI::Option* budgets =
      add_parsed(verb, "--budgets", arguments->budgets, parse_range, "LO:HI:N",
                 "N budgets from LO to HI, or auto[:N] (default auto:20): from what every plan "
                 "needs to what keeping everything takes");
  add_parsed(verb, "--activation-budgets", arguments->activation_budgets, parse_range, "LO:HI:N",
             "The same without the fixed bytes")
      ->excludes(budgets);
  add_accounting(verb, arguments->options.accounting);
  add_search(verb, arguments->search);
  add_threads(verb, arguments->threads);
  add_output(verb, arguments->output, "Write the CSV here (default: standard output)");
  verb.add_option("--plot", arguments->plot,
                  "Draw cost ratio against peak GB: FILE.png, .svg, .pdf or .html")
      ->type_name("FILE");
  add_json(verb, arguments->json);
  set_action<Arguments>(verb, action, arguments, run_sweep);
}

}  // namespace regen::cli
