// regen plan: choose what to keep and what to recompute, and judge the choice.
#include <optional>
#include <string>

#include "cli/interrupt.h"
#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/options/planners.h"
#include "cli/output/bound_text.h"
#include "cli/output/output.h"
#include "cli/output/schedule_text.h"
#include "cli/output/search_log.h"
#include "cli/output/search_trace_text.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/base/progress/progress.h"
#include "regen/plan/explain.h"
#include "regen/plan/plan_json.h"
#include "regen/published/checkmate/stage_matrices.h"
#include "regen/search/search_progress.h"
#include "regen/search/services/addressed_plan.h"

namespace regen::cli {
namespace {

struct PlanArguments {
  GraphArgument graph;
  BudgetArgument budget;
  Limits limits;
  std::string planner = "auto";
  PlannerArguments options;
  bool progress = false;
  bool explain_search = false;
  std::string output;
  std::string schedule;
  std::string matrices;
  bool addresses = false;
  bool json = false;
};

// How high the addresses of a plan reach, and the most bytes that live at once.
struct Packed {
  Bytes height = 0;
  Bytes load = 0;

  double ratio() const {
    return load == 0 ? 1.0 : static_cast<double>(height) / static_cast<double>(load);
  }
};

// A solved problem and what the report says beside the planner's own outcome.
struct Report {
  search::Outcome outcome;
  std::optional<Bytes> budget;
  Bytes structural_bound = 0;
  std::optional<Packed> packed;
  std::string_view accounting = "plain";
  search::SearchTrace trace;  // empty unless it was asked for

  bool found() const {
    return outcome.status == search::PlanStatus::kOptimal ||
           outcome.status == search::PlanStatus::kFeasible;
  }
};

Json report_json(const Graph& graph, const Report& report) {
  const search::Outcome& outcome = report.outcome;
  const Simulation& simulation = outcome.simulation;
  const bool planned = outcome.plan.has_value();
  Json json{
      {"graph", graph.name()},
      {"planner", outcome.planner},
      {"accounting", report.accounting},
      {"status", to_string(outcome.status)},
      {"cost", json_or_null(planned, json_number(simulation.cost))},
      {"base_cost", json_number(outcome.base_cost)},
      {"cost_unit", to_string(graph.cost_unit())},
      {"overhead", json_or_null(planned, json_number(simulation.overhead))},
      {"peak_bytes", json_or_null(planned, simulation.peak_bytes)},
      {"fixed_bytes", graph.fixed_bytes()},
      {"activation_peak_bytes", json_or_null(planned, simulation.activation_peak_bytes)},
      {"host_peak_bytes", json_or_null(planned, simulation.host_peak_bytes)},
      {"budget_bytes", report.budget ? Json(*report.budget) : Json(nullptr)},
      {"structural_bound_bytes", report.structural_bound},
      {"lower_bound", json_number(outcome.lower_bound)},
      {"bound_kind", to_string(outcome.bound_kind)},
      {"gap", json_or_null(planned, json_number(outcome.gap))},
      {"seconds", json_number(outcome.seconds)},
      {"work", outcome.work},
      {"steps", json_or_null(planned, planned ? outcome.plan->steps.size() : 0)},
      {"recomputed", json_or_null(planned, simulation.recomputed)},
      {"offloaded_bytes", json_or_null(planned, simulation.offloaded_bytes)},
      {"stall", json_or_null(planned, json_number(simulation.stall))},
      {"note", outcome.note},
  };
  for (const auto& [name, value] : outcome.figures) json[name] = json_number(value);
  if (!report.trace.events.empty()) json["search"] = trace_json(report.trace);
  if (report.packed) {
    json["packed_bytes"] = report.packed->height;
    json["packed_ratio"] = json_number(report.packed->ratio());
  }
  return json;
}

std::string memory_text(const Graph& graph, const Report& report) {
  const Simulation& simulation = report.outcome.simulation;
  std::string text = full_bytes(simulation.peak_bytes) + " = " + format_bytes(graph.fixed_bytes()) +
                     " fixed + " + format_bytes(simulation.activation_peak_bytes) + " activations";
  if (report.packed) {
    text += ", packed into " + decimals(report.packed->ratio(), 4) + " x the highest live sum";
  }
  return text;
}

std::string report_text(const LoadedGraph& loaded, const Report& report) {
  const Graph& graph = loaded.graph;
  const search::Outcome& outcome = report.outcome;
  const Simulation& simulation = outcome.simulation;
  std::vector<std::pair<std::string, std::string>> lines{
      {"graph", loaded.label + ": " + std::to_string(graph.num_ops()) + " ops, " +
                    std::to_string(graph.num_tensors()) + " tensors"},
      {"planner", outcome.planner + ": " + std::string(to_string(outcome.status)) + " in " +
                      format_cost(outcome.seconds, CostUnit::kSecond) +
                      (outcome.note.empty() ? "" : " (" + outcome.note + ")")},
      {"cost", full_cost(simulation.cost, graph.cost_unit()) + ", " + percent(simulation.overhead) +
                   " over keeping everything; at least " +
                   full_cost(outcome.lower_bound, graph.cost_unit()) + " (" +
                   std::string(bound_plans(outcome.bound_kind)) + "), gap " +
                   decimals(100 * outcome.gap, 1) + " %"},
      {"memory", memory_text(graph, report)},
      {"budget", report.budget ? full_bytes(*report.budget) : "none"},
      {"bound", full_bytes(report.structural_bound) + " are needed by every plan"},
      {"steps", format_grouped(static_cast<std::int64_t>(outcome.plan->steps.size())) + ", " +
                    format_grouped(static_cast<std::int64_t>(simulation.recomputed)) +
                    " recomputations, " + format_bytes(simulation.offloaded_bytes) + " moved"},
  };
  const std::string search = report.trace.events.empty()
                                 ? std::string()
                                 : "\n" + trace_text(report.trace, graph.cost_unit());
  return facts(lines) + search;
}

// What the addresses cost: how high they reach, over the most bytes that live at once.
Status weigh_addresses(const LoadedGraph& loaded, Report& report) {
  Plan plan = *report.outcome.plan;
  plan.addresses.reset();
  REGEN_ASSIGN(const Simulation loose, simulate(loaded.graph, plan, {.link = loaded.link}));
  report.packed = Packed{.height = report.outcome.simulation.activation_peak_bytes,
                         .load = loose.activation_peak_bytes};
  return {};
}

Error no_plan_error(const Graph& graph, const Report& report) {
  const search::Outcome& outcome = report.outcome;
  if (outcome.status == search::PlanStatus::kInfeasible) {
    return infeasible(outcome.note.empty() ? "no plan fits" : outcome.note);
  }
  const std::string next = outcome.planner == "auto"
                               ? "; a larger --budget or more --time-limit may help"
                               : "; --planner auto, or a larger --budget, may help";
  return limit_reached("planner " + outcome.planner + " found no plan for '" + graph.name() +
                       "' (" + outcome.note + "); every plan needs at least " +
                       format_grouped(report.structural_bound) + " bytes" + next);
}

// Ctrl-C is one more limit: the best plan so far is the answer, and the note says why it is.
Result<search::Outcome> solve_until_interrupted(const PlanArguments& arguments,
                                                const search::Problem& problem) {
  const InterruptGuard guard;
  Limits limits = arguments.limits;
  limits.interrupt = guard.flag();
  REGEN_ASSIGN(const search::Planner* planner, find_planner(arguments.planner));
  REGEN_ASSIGN(search::Outcome outcome, arguments.addresses
                                            ? search::solve_addressed(*planner, problem, {}, limits)
                                            : search::solve(*planner, problem, limits));
  const bool proven = outcome.status == search::PlanStatus::kOptimal ||
                      outcome.status == search::PlanStatus::kInfeasible;
  const bool said = outcome.note.find("interrupted") != std::string::npos;  // by the planner itself
  if (guard.interrupted() && !proven && !said) {
    outcome.note += (outcome.note.empty() ? "" : "; ") + std::string("interrupted");
  }
  return outcome;
}

Result<Report> solve_problem(const PlanArguments& arguments, const LoadedGraph& loaded) {
  Report report{.accounting = arguments.options.accounting_name()};
  REGEN_ASSIGN(report.budget, resolve_budget(arguments.budget, loaded));
  Progress progress(
      {.stage = "plan", .base = loaded.graph.base_cost(), .unit = loaded.graph.cost_unit()});
  SearchLog log(loaded.graph.cost_unit(), arguments.progress, progress);
  const search::Problem problem{.graph = &loaded.graph,
                                .link = loaded.link,
                                .budget = report.budget,
                                .host_budget = arguments.budget.host,
                                .options = arguments.options.resolved(),
                                .observer = log.observer(),
                                .registry = &published::every_planner(),
                                .ablation = &arguments.options.ablation,
                                .trace = arguments.explain_search ? &report.trace : nullptr};
  auto outcome = solve_until_interrupted(arguments, problem);
  search::settle(progress, outcome);
  REGEN_ASSIGN(report.outcome, std::move(outcome));
  report.structural_bound = structural_bound(loaded.graph).bytes;
  return report;
}

Status run_plan(const PlanArguments& arguments) {
  REGEN_TRY(arguments.options.check({{arguments.planner}}));
  if (arguments.explain_search && arguments.planner != "auto") {
    return bad_input("--explain-search: planner " + arguments.planner +
                     " does not take it, expected auto");
  }
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  REGEN_ASSIGN(Report report, solve_problem(arguments, loaded));
  if (report.found() && arguments.addresses) REGEN_TRY(weigh_addresses(loaded, report));
  const Json json = report_json(loaded.graph, report);
  if (report.found() && !arguments.output.empty()) {
    REGEN_TRY(write_file(arguments.output, write_plan(*report.outcome.plan, json)));
  }
  if (report.found() && !arguments.schedule.empty()) {
    REGEN_TRY(write_schedule_file(loaded.graph, *report.outcome.plan, arguments.schedule));
  }
  if (report.found() && !arguments.matrices.empty()) {
    REGEN_ASSIGN(const published::StageMatrices matrices,
                 published::matrices_from_plan(loaded.graph, *report.outcome.plan));
    REGEN_TRY(published::write_stage_matrices(matrices, arguments.matrices));
  }
  const bool plan_printed = report.found() && arguments.output == "-";
  if (arguments.json && !plan_printed) {
    REGEN_TRY(print_json(json));
  } else if (report.found() && !plan_printed) {
    REGEN_TRY(print(report_text(loaded, report)));
  }
  return report.found() ? Status() : Status(no_plan_error(loaded.graph, report));
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "plan", "Plan a training step within a budget and judge the plan",
               "  regen plan zoo:vgg19@64 --budget 6GiB -o plan.json\n"
               "  regen plan graph.json --activation-budget 500MB --planner chen_sqrt");
  auto arguments = std::make_shared<PlanArguments>();
  add_graph(verb, arguments->graph);
  add_budget(verb, arguments->budget);
  verb.add_option("--planner", arguments->planner, "The planner (default auto)")->type_name("NAME");
  add_planner_options(verb, arguments->options);
  add_limits(verb, arguments->limits);
  verb.add_flag("--progress", arguments->progress,
                "Print best cost, bound and gap line by line as they improve, on standard error (a "
                "terminal shows them in one line that changes)");
  verb.add_flag("--explain-search", arguments->explain_search,
                "auto: print which parts were asked, and which made the first plan, the best plan "
                "and the bound");
  verb.add_flag("--addresses", arguments->addresses, "Give every tensor an address");
  add_output(verb, arguments->output, "Write the plan here; - is standard output");
  verb.add_option("--write-schedule", arguments->schedule,
                  "Write it as compute and forget orders here; for lower-set graphs")
      ->type_name("FILE");
  verb.add_option("--write-matrices", arguments->matrices,
                  "Write it as matrices R, S, P, Q into this folder; one tensor an op")
      ->type_name("DIR");
  add_json(verb, arguments->json);
  set_action<PlanArguments>(verb, action, arguments, run_plan);
}

}  // namespace regen::cli
