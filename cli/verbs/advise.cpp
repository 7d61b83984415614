// regen advise: what memory buys, over the whole range of budgets: time, and room for samples.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/options/batched_graph.h"
#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/options/planners.h"
#include "cli/output/bound_text.h"
#include "cli/output/output.h"
#include "cli/verbs/verbs.h"
#include "regen/base/parallel.h"
#include "regen/base/progress/progress.h"
#include "regen/plan/explain.h"
#include "regen/search/judge.h"
#include "regen/search/services/batch_curve.h"
#include "regen/search/services/budget_knowledge.h"

namespace regen::cli {
namespace {

// For the whole table, unless the user says otherwise.
constexpr double kDefaultSeconds = 30;
// Of the seconds, for the rows; the rest is for the largest batches.
constexpr double kRowsFraction = 0.8;
// Each plan that checks whether a batch fits gets a row's work divided by this.
constexpr std::int64_t kBatchWorkDivisor = 10;

struct AdviseArguments {
  GraphArgument graph;
  std::string planner = "auto";
  std::int64_t points = 12;
  std::optional<std::int64_t> batch;
  PlannerArguments options;
  Limits limits;
  std::int64_t threads = 0;
  bool json = false;
};

// One budget: the best plan, and what the memory up to the next budget buys.
struct Point {
  Bytes budget = 0;
  search::Outcome outcome;
  std::optional<double> per_gib;  // cost saved by each further GiB
  bool knee = false;
  std::optional<search::LargestBatch> largest;  // absent if the graph has no batch

  bool found() const {
    return outcome.status == search::PlanStatus::kOptimal ||
           outcome.status == search::PlanStatus::kFeasible;
  }
};

constexpr double kGib = 1024.0 * 1024 * 1024;

Result<std::vector<Point>> even_budgets(const AdviseArguments& arguments,
                                        const LoadedGraph& loaded) {
  const Bytes low = structural_bound(loaded.graph).bytes;
  REGEN_ASSIGN(const search::Outcome kept,
               search::solve(search::own_planner("keep_all"), {.graph = &loaded.graph}));
  const Bytes high = std::max(low, kept.simulation.peak_bytes);
  std::vector<Point> points(static_cast<std::size_t>(arguments.points));
  for (std::size_t i = 0; i < points.size(); ++i) {
    const double fraction = static_cast<double>(i) / static_cast<double>(points.size() - 1);
    points[i].budget = low + static_cast<Bytes>(fraction * static_cast<double>(high - low));
  }
  return points;
}

Status solve_points(const AdviseArguments& arguments, const LoadedGraph& loaded,
                    const search::Planner& planner, const Limits& limits,
                    std::vector<Point>& points) {
  std::vector<std::optional<Result<search::Outcome>>> outcomes(points.size());
  Progress progress({.stage = "advise", .pieces = "budgets", .total = points.size()});
  parallel_for(points.size(), static_cast<int>(arguments.threads), [&](std::size_t i) {
    const search::Problem problem{.graph = &loaded.graph,
                                  .link = loaded.link,
                                  .budget = points[i].budget,
                                  .options = arguments.options.resolved(),
                                  .registry = &published::every_planner(),
                                  .ablation = &arguments.options.ablation};
    outcomes[i] = search::solve(planner, problem, limits);
    progress.advance();
  });
  for (std::size_t i = 0; i < points.size(); ++i) {
    REGEN_ASSIGN(points[i].outcome, std::move(*outcomes[i]));
  }
  return {};
}

void carry_over(std::vector<Point>& points) {
  std::vector<search::Outcome*> ascending;
  ascending.reserve(points.size());
  for (Point& point : points) ascending.push_back(&point.outcome);
  search::share_knowledge(ascending);
}

Status find_batches(const AdviseArguments& arguments, const LoadedGraph& loaded,
                    const BatchedGraph& batched, const search::Planner& planner,
                    const Limits& limits, std::vector<Point>& points) {
  if (!batched.graph_at) return {};
  const search::BatchCurveProblem problem{.graph_at = batched.graph_at,
                                          .batch = batched.batch,
                                          .link = loaded.link,
                                          .options = arguments.options.resolved(),
                                          .limits = limits};
  std::vector<search::BatchBudget> budgets;
  for (const Point& point : points) {
    const bool fits = point.found() &&
                      search::within_one_forward_pass(loaded.graph, point.outcome.simulation.cost);
    budgets.push_back({point.budget, fits});
  }
  REGEN_ASSIGN(const std::vector<search::LargestBatch> largest,
               search::largest_batches(planner, problem, budgets));
  for (std::size_t i = 0; i < points.size(); ++i) points[i].largest = largest[i];
  return {};
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
          {"bound_kind", to_string(point.outcome.bound_kind)},
          {"peak_bytes", json_or_null(found, simulation.peak_bytes)},
          {"recomputed", json_or_null(found, simulation.recomputed)},
          {"offloaded_bytes", json_or_null(found, simulation.offloaded_bytes)},
          {"saved_per_gib",
           json_or_null(point.per_gib.has_value(), json_number(point.per_gib.value_or(0)))},
          {"knee", point.knee},
          {"max_batch", point.largest ? Json(point.largest->batch) : Json(nullptr)},
          {"max_batch_settled", point.largest ? Json(point.largest->settled) : Json(nullptr)}};
}

std::string batch_text(const std::optional<search::LargestBatch>& largest) {
  if (!largest) return "";
  if (largest->batch == 0) return "none";
  return (largest->settled ? "" : ">= ") + format_grouped(largest->batch);
}

// What the last column means, or why there is none.
std::string batch_note(const BatchedGraph& batched) {
  if (!batched.graph_at) return "no largest batch: " + batched.why_not + "\n";
  std::string note =
      "largest batch: in the budget, at one more forward pass at most (as max-batch counts)";
  if (batched.scaled) {
    note += ", sizes and times in proportion to batch " + std::to_string(batched.batch);
  }
  return note + "\n";
}

// Whether something is proven: all plans of a kind cost at least so much, or none of them fits.
bool has_proof(const Point& point) {
  return point.found() || point.outcome.status == search::PlanStatus::kInfeasible;
}

std::string bound_cell(const Point& point) {
  return has_proof(point) ? std::string(bound_plans(point.outcome.bound_kind)) : "";
}

std::string bound_legend(const std::vector<Point>& points) {
  std::vector<search::BoundKind> kinds;
  for (const Point& point : points) {
    if (has_proof(point)) kinds.push_back(point.outcome.bound_kind);
  }
  return bound_note(kinds);
}

std::string table_text(const LoadedGraph& loaded, const std::vector<Point>& points) {
  const CostUnit unit = loaded.graph.cost_unit();
  Table table({{"budget", Table::Align::kRight},
               {"time", Table::Align::kRight},
               {"over", Table::Align::kRight},
               {"at least", Table::Align::kRight},
               {"bound over"},
               {"run again", Table::Align::kRight},
               {"moved", Table::Align::kRight},
               {"one more GiB saves", Table::Align::kRight},
               {"largest batch", Table::Align::kRight},
               {""}});
  for (const Point& point : points) {
    const Simulation& simulation = point.outcome.simulation;
    if (!point.found()) {
      const std::string status(to_string(point.outcome.status));
      table.add({format_bytes(point.budget), status, "", "", bound_cell(point), "", "", "",
                 batch_text(point.largest), ""});
      continue;
    }
    table.add({format_bytes(point.budget), format_cost(simulation.cost, unit),
               percent(simulation.overhead), format_cost(point.outcome.lower_bound, unit),
               bound_cell(point), std::to_string(simulation.recomputed),
               format_bytes(simulation.offloaded_bytes),
               point.per_gib ? format_cost(*point.per_gib, unit) : "", batch_text(point.largest),
               point.knee ? "knee" : ""});
  }
  return table.text();
}

struct TableLimits {
  Limits row;
  Limits batch;  // of each plan that checks whether a batch fits
};

// --time-limit is for the whole table: rows are planned on all cores, batches one after the other.
// --work-limit is for each row, so that the same call prints the same table.
TableLimits table_limits(const AdviseArguments& arguments, const std::atomic<bool>* interrupt) {
  TableLimits limits{.row = arguments.limits, .batch = arguments.limits};
  limits.row.interrupt = limits.batch.interrupt = interrupt;
  const Limits none;
  if (arguments.limits.work != none.work) {
    limits.batch.work = std::max<std::int64_t>(1, arguments.limits.work / kBatchWorkDivisor);
    return limits;
  }
  const double given = arguments.limits.seconds;
  const double seconds = given == none.seconds ? kDefaultSeconds : given;
  const auto rows = static_cast<double>(arguments.points);
  const double at_once = std::min(rows, static_cast<double>(available_threads()));
  limits.row.seconds = kRowsFraction * seconds * at_once / rows;
  const auto batches = rows * static_cast<double>(search::BatchCurveProblem{}.most_solves);
  limits.batch.seconds = (1 - kRowsFraction) * seconds / batches;
  return limits;
}

Status run_advise(const AdviseArguments& arguments) {
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(const BatchedGraph batched, batched_graph(arguments.graph, loaded, arguments.batch));
  REGEN_TRY(arguments.options.check({{arguments.planner}}));
  REGEN_ASSIGN(const search::Planner* planner, find_planner(arguments.planner));
  const InterruptGuard guard;
  const TableLimits limits = table_limits(arguments, guard.flag());
  REGEN_ASSIGN(std::vector<Point> points, even_budgets(arguments, loaded));
  REGEN_TRY(solve_points(arguments, loaded, *planner, limits.row, points));
  carry_over(points);
  price(points);
  REGEN_TRY(find_batches(arguments, loaded, batched, *planner, limits.batch, points));
  if (!arguments.json) {
    return print(table_text(loaded, points) + bound_legend(points) + batch_note(batched));
  }
  Json rows = Json::array();
  for (const Point& point : points) rows.push_back(point_json(point));
  return print_json(rows);
}

}  // namespace

void add_advise(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "advise", "What memory buys: time and batch against budget, with the knees",
               "  regen advise zoo:resnet50@64 --device v100-16\n"
               "  regen advise graph.json --cost graph --points 20 --time-limit 2");
  auto arguments = std::make_shared<AdviseArguments>();
  add_graph(verb, arguments->graph);
  verb.add_option("--planner", arguments->planner, "The planner (default auto)")->type_name("NAME");
  add_parsed(verb, "--points", arguments->points, whole_number(2, 1000), "N",
             "Budgets, from what every plan needs to what keeping everything takes (default 12)");
  add_parsed(verb, "--batch", arguments->batch, whole_number(1, kMaxBatch), "N",
             "The batch of a graph in a file that does not say it: for the largest batches");
  add_planner_options(verb, arguments->options);
  add_limits(verb, arguments->limits);
  verb.get_option("--time-limit")->description("For the whole table (default 30)");
  verb.get_option("--work-limit")
      ->description("For each row instead: the same table on every machine");
  add_threads(verb, arguments->threads);
  add_json(verb, arguments->json);
  set_action(verb, action, arguments, run_advise);
}

}  // namespace regen::cli
