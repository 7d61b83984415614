// regen simulate: what a plan costs and how much memory it takes.
#include <filesystem>
#include <string>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/output/schedule_text.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/plan/plan_json.h"
#include "regen/plan/validate.h"
#include "regen/published/lower_sets/format/schedule_text.h"
#include "regen/simulate/simulate.h"
#include "regen/simulate/trace.h"

namespace regen::cli {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;

struct SimulateArguments {
  GraphArgument graph;
  std::string plan;
  std::string trace;
  std::string output;
  bool json = false;
};

Json simulation_json(const Graph& graph, const Plan& plan, const Simulation& simulation) {
  return {{"graph", graph.name()},
          {"planner", plan.planner},
          {"cost", json_number(simulation.cost)},
          {"base_cost", json_number(graph.base_cost())},
          {"cost_unit", to_string(graph.cost_unit())},
          {"overhead", json_number(simulation.overhead)},
          {"compute_cost", json_number(simulation.compute_cost)},
          {"stall", json_number(simulation.stall)},
          {"peak_bytes", simulation.peak_bytes},
          {"fixed_bytes", graph.fixed_bytes()},
          {"activation_peak_bytes", simulation.activation_peak_bytes},
          {"host_peak_bytes", simulation.host_peak_bytes},
          {"offloaded_bytes", simulation.offloaded_bytes},
          {"fetched_bytes", simulation.fetched_bytes},
          {"peak_step", simulation.peak_step},
          {"steps", plan.steps.size()},
          {"recomputed", simulation.recomputed}};
}

std::string simulation_text(const Graph& graph, const Plan& plan, const Simulation& simulation) {
  return facts({
      {"cost", full_cost(simulation.cost, graph.cost_unit()) + ", " + percent(simulation.overhead) +
                   " over keeping everything, of it stalls " +
                   format_cost(simulation.stall, graph.cost_unit())},
      {"memory", full_bytes(simulation.peak_bytes) + " = " + format_bytes(graph.fixed_bytes()) +
                     " fixed + " + format_bytes(simulation.activation_peak_bytes) +
                     " activations, at step " + std::to_string(simulation.peak_step)},
      {"host", format_bytes(simulation.host_peak_bytes) + " at most, " +
                   format_bytes(simulation.offloaded_bytes) + " moved out, " +
                   format_bytes(simulation.fetched_bytes) + " moved in"},
      {"steps", format_grouped(static_cast<std::int64_t>(plan.steps.size())) + ", " +
                    format_grouped(static_cast<std::int64_t>(simulation.recomputed)) +
                    " recomputations"},
  });
}

Status run_simulate(const SimulateArguments& arguments) {
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(arguments.graph));
  if (!std::filesystem::is_directory(arguments.plan)) {
    REGEN_ASSIGN(const std::string text, read_file(arguments.plan, kMaxFileBytes));
    if (published::looks_like_schedule(text)) {
      if (!arguments.trace.empty())
        return bad_input("--trace: a schedule has no times to draw, expected a plan file");
      if (!arguments.output.empty())
        return bad_input("--output: a schedule is not a plan, expected a plan file");
      return simulate_schedule(loaded.graph, text, arguments.plan, arguments.json);
    }
  }
  REGEN_ASSIGN(const Plan plan, load_plan(arguments.plan, loaded.graph));
  const auto validation = validate(loaded.graph, plan);
  if (!validation.ok()) return in_file(arguments.plan, validation.error());
  const SimulateOptions options{.link = loaded.link, .record = !arguments.trace.empty()};
  const auto simulation = simulate(loaded.graph, plan, options);
  if (!simulation.ok()) return in_file(arguments.plan, simulation.error());
  if (!arguments.trace.empty()) {
    REGEN_TRY(write_file(arguments.trace, chrome_trace(loaded.graph, plan, *simulation)));
  }
  if (!arguments.output.empty()) REGEN_TRY(write_file(arguments.output, write_plan(plan)));
  if (arguments.output == "-") return {};
  if (arguments.json) return print_json(simulation_json(loaded.graph, plan, *simulation));
  return print(simulation_text(loaded.graph, plan, *simulation));
}

}  // namespace

void add_simulate(CLI::App& app, Action& action) {
  CLI::App& verb =
      add_verb(app, "simulate", "Run a plan in the simulator: cost, stalls and memory",
               "  regen simulate zoo:vgg19@64 plan.json --device v100-16 --trace timeline.json");
  auto arguments = std::make_shared<SimulateArguments>();
  add_graph(verb, arguments->graph);
  verb.add_option("PLAN", arguments->plan,
                  "A plan file, a folder of matrices R, S, P, Q, or a schedule of orders")
      ->required()
      ->type_name("");
  verb.add_option("--trace", arguments->trace,
                  "Write a timeline for Perfetto or chrome://tracing here")
      ->type_name("FILE");
  add_output(verb, arguments->output, "Write the plan here as a plan file; - is standard output");
  add_json(verb, arguments->json);
  set_action<SimulateArguments>(verb, action, arguments, run_simulate);
}

}  // namespace regen::cli
