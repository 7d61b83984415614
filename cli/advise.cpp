// regen advise: what memory buys, over the whole range of budgets.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/planner_options.h"
#include "cli/verbs.h"
#include "regen/base/text.h"
#include "regen/plan/explain.h"
#include "regen/planners/planner.h"

namespace regen::cli {
namespace {

struct Arguments {
  GraphArgument graph;
  std::string planner = "auto";
  std::int64_t points = 12;
  PlannerOptions options;
  Limits limits;
  bool json = false;
};

// One budget: the best plan, and what the memory up to the next budget buys.
struct Point {
  Bytes budget = 0;
  Outcome outcome;
  std::optional<double> per_gib;  // cost saved by each further GiB
  bool knee = false;

  bool found() const {
    return outcome.status == PlanStatus::kOptimal || outcome.status == PlanStatus::kFeasible;
  }
};

constexpr double kGib = 1024.0 * 1024 * 1024;

Result<std::vector<Point>> solve_points(const Arguments& arguments, const LoadedGraph& loaded) {
  const Problem whole{.graph = &loaded.graph, .link = loaded.link, .options = arguments.options};
  const Bytes low = structural_bound(loaded.graph).bytes;
  REGEN_ASSIGN(const Outcome kept, solve("keep_all", whole));
  const Bytes high = std::max(low, kept.simulation.peak_bytes);
  std::vector<Point> points;
  for (std::int64_t i = 0; i < arguments.points; ++i) {
    Problem problem = whole;
    const double share = static_cast<double>(i) / static_cast<double>(arguments.points - 1);
    problem.budget = low + static_cast<Bytes>(share * static_cast<double>(high - low));
    Point point{.budget = *problem.budget};
    REGEN_ASSIGN(point.outcome, solve(arguments.planner, problem, arguments.limits));
    // What fits into less fits here too.
    if (!points.empty() && points.back().found() &&
        (!point.found() || points.back().outcome.simulation.cost < point.outcome.simulation.cost)) {
      const double bound = point.outcome.lower_bound;
      point.outcome = points.back().outcome;
      point.outcome.lower_bound = bound;
    }
    points.push_back(std::move(point));
  }
  return points;
}

// A knee is where the curve lies furthest below the straight line between the ends of its part.
void mark_knee(std::vector<Point>& points, std::size_t first, std::size_t last, int depth) {
  if (depth == 0 || last - first < 2) return;
  const auto x = [&](std::size_t i) { return static_cast<double>(points[i].budget); };
  const auto y = [&](std::size_t i) { return points[i].outcome.simulation.cost; };
  std::size_t best = first;
  double deepest = 0.02 * (y(first) - y(last));
  for (std::size_t i = first + 1; i < last; ++i) {
    const double line = y(first) + (y(last) - y(first)) * (x(i) - x(first)) / (x(last) - x(first));
    if (line - y(i) > deepest) {
      deepest = line - y(i);
      best = i;
    }
  }
  if (best == first) return;
  points[best].knee = true;
  mark_knee(points, first, best, depth - 1);
  mark_knee(points, best, last, depth - 1);
}

void price(std::vector<Point>& points) {
  std::size_t first = 0;
  while (first < points.size() && !points[first].found()) ++first;
  if (first == points.size()) return;
  for (std::size_t i = first; i + 1 < points.size(); ++i) {
    const double saved = points[i].outcome.simulation.cost - points[i + 1].outcome.simulation.cost;
    const Bytes more = points[i + 1].budget - points[i].budget;
    if (more > 0) points[i].per_gib = saved / (static_cast<double>(more) / kGib);
  }
  mark_knee(points, first, points.size() - 1, 2);
}

Json point_json(const Point& point) {
  const bool found = point.found();
  const Simulation& simulation = point.outcome.simulation;
  return {{"budget_bytes", point.budget},
          {"status", to_string(point.outcome.status)},
          {"cost", json_or_null(found, json_number(simulation.cost))},
          {"overhead", json_or_null(found, json_number(simulation.overhead))},
          {"lower_bound", json_number(point.outcome.lower_bound)},
          {"peak_bytes", json_or_null(found, simulation.peak_bytes)},
          {"recomputed", json_or_null(found, simulation.recomputed)},
          {"offloaded_bytes", json_or_null(found, simulation.offloaded_bytes)},
          {"saved_per_gib",
           json_or_null(point.per_gib.has_value(), json_number(point.per_gib.value_or(0)))},
          {"knee", point.knee}};
}

std::string table_text(const LoadedGraph& loaded, const std::vector<Point>& points) {
  const CostUnit unit = loaded.graph.cost_unit();
  Table table({{"budget", Table::Align::kRight},
               {"time", Table::Align::kRight},
               {"over", Table::Align::kRight},
               {"at least", Table::Align::kRight},
               {"run again", Table::Align::kRight},
               {"moved", Table::Align::kRight},
               {"one more GiB saves", Table::Align::kRight},
               {""}});
  for (const Point& point : points) {
    const Simulation& simulation = point.outcome.simulation;
    if (!point.found()) {
      const std::string status(to_string(point.outcome.status));
      table.add({format_bytes(point.budget), status, "", "", "", "", "", ""});
      continue;
    }
    table.add({format_bytes(point.budget), format_cost(simulation.cost, unit),
               percent(simulation.overhead), format_cost(point.outcome.lower_bound, unit),
               std::to_string(simulation.recomputed), format_bytes(simulation.offloaded_bytes),
               point.per_gib ? format_cost(*point.per_gib, unit) : "", point.knee ? "knee" : ""});
  }
  return table.text();
}

Status run_advise(const Arguments& arguments) {
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(std::vector<Point> points, solve_points(arguments, loaded));
  price(points);
  if (!arguments.json) return print(table_text(loaded, points));
  Json rows = Json::array();
  for (const Point& point : points) rows.push_back(point_json(point));
  return print_json(rows);
}

}  // namespace

void add_advise(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "advise", "What memory buys: time against budget, with its knees",
                            "  regen advise zoo:resnet50@64 --device v100-16\n"
                            "  regen advise graph.json --cost graph --points 20 --time-limit 2");
  auto arguments = std::make_shared<Arguments>();
  arguments->limits.seconds = 2;
  add_graph(verb, arguments->graph);
  verb.add_option("--planner", arguments->planner, "Who plans (default auto)")->type_name("NAME");
  add_parsed(verb, "--points", arguments->points, whole_number(2, 1000), "N",
             "Budgets, from what every plan needs to what keeping everything takes (default 12)");
  add_planner_options(verb, arguments->options);
  add_limits(verb, arguments->limits);
  add_json(verb, arguments->json);
  set_action(verb, action, arguments, run_advise);
}

}  // namespace regen::cli
