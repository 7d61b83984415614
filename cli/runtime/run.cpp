// regen run: a captured step under a plan, without Python; predicted beside measured.
#include <string>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/runtime/measured_run.h"
#include "cli/runtime/verbs.h"
#include "regen/base/file.h"
#include "regen/plan/plan_json.h"

namespace regen::cli {
namespace {

struct RunArguments {
  ProgramArgument program;
  PlanArgument plan;
  RunOptions run;
  std::int64_t seed = 0;
  std::string trace;
  std::string output;
  bool json = false;
};

Json left_json(const std::vector<LeftTensor>& left) {
  Json list = Json::array();
  for (const LeftTensor& one : left) {
    list.push_back(
        {{"kind", one.kind}, {"name", one.name}, {"checksum", hex(checksum(one.tensor))}});
  }
  return list;
}

Json deviations_json(const MeasuredRun& run) {
  Json list = Json::array();
  for (const execute::Deviation& d : run.deviations) {
    list.push_back({{"node", d.label},
                    {"unforeseen", d.unforeseen},
                    {"unforeseen_bytes", d.unforeseen_bytes},
                    {"unasked", d.unasked}});
  }
  return list;
}

Json run_json(const PreparedStep& prepared, const StepPlan& plan, const MeasuredRun& run) {
  const Simulation& predicted = plan.simulation();
  return {{"program", prepared.program().name},
          {"device", prepared.device().name()},
          {"planner", plan.plan().planner},
          {"status", plan.status},
          {"budget_bytes", plan.budget ? Json(*plan.budget) : Json(nullptr)},
          {"predicted_peak_bytes", predicted.peak_bytes},
          {"measured_peak_bytes", run.peak_bytes},
          {"driver_bytes", run.driver_bytes},
          {"arena_bytes", run.arena_bytes},
          {"fixed_bytes", prepared.graph().fixed_bytes()},
          {"host_bytes", run.host_bytes},
          {"predicted_seconds", json_number(predicted.cost)},
          {"measured_seconds", json_number(run.median())},
          {"base_seconds", json_number(prepared.graph().base_cost())},
          {"step_seconds", run.seconds},
          {"steps", plan.plan().steps.size()},
          {"recomputed", predicted.recomputed},
          {"offloaded_bytes", predicted.offloaded_bytes},
          {"unforeseen", run.unforeseen()},
          {"deviations", deviations_json(run)},
          {"checksum", hex(checksum(run.left))},
          {"left", left_json(run.left)}};
}

std::string unforeseen_text(const MeasuredRun& run) {
  if (run.deviations.empty()) return "none: every allocation was as recorded";
  std::string text = format_count(run.unforeseen(), "allocation") + " in";
  for (std::size_t i = 0; i < run.deviations.size() && i < 5; ++i) {
    text += " " + run.deviations[i].label;
  }
  return text;
}

std::string memory_text(const PreparedStep& prepared, const MeasuredRun& run) {
  const bool cpu = prepared.device().torch_device().is_cpu();
  return full_bytes(run.peak_bytes) + " measured, of it " + format_bytes(run.arena_bytes) +
         " arena" + (cpu ? "" : "; " + format_bytes(run.driver_bytes) + " as the driver counts");
}

std::string run_text(const PreparedStep& prepared, const StepPlan& plan, const MeasuredRun& run) {
  const Simulation& predicted = plan.simulation();
  std::vector<std::pair<std::string, std::string>> lines{
      {"program", prepared.program().name + " on " + prepared.device().name()},
      {"plan", plan.plan().planner + " (" + plan.status + "), " +
                   format_count(plan.plan().steps.size(), "step") + ", " +
                   std::to_string(predicted.recomputed) + " recomputations, " +
                   format_bytes(predicted.offloaded_bytes) + " moved"},
      {"budget", plan.budget ? full_bytes(*plan.budget) : "none"},
      {"peak", full_bytes(predicted.peak_bytes) + " predicted, of it " +
                   format_bytes(prepared.graph().fixed_bytes()) + " fixed"},
      {"", memory_text(prepared, run)},
      {"time", format_cost(predicted.cost, CostUnit::kSecond) + " predicted"},
      {"", format_cost(run.median(), CostUnit::kSecond) + " measured, median of " +
               format_count(run.seconds.size(), "step")},
      {"unforeseen", unforeseen_text(run)},
  };
  for (const LeftTensor& left : run.left) {
    if (left.kind != "output" && left.kind != "gradient") continue;
    lines.push_back({left.kind, hex(checksum(left.tensor)) + "  " + left.name});
  }
  lines.push_back({"checksum", hex(checksum(run.left)) +
                                   "  results, parameters, buffers, states, random numbers"});
  return facts(lines);
}

Status run_run(const RunArguments& arguments) {
  REGEN_TRY(check_planner(arguments.plan));
  REGEN_ASSIGN(PreparedStep prepared, prepare_step(arguments.program, {}));
  REGEN_ASSIGN(const StepPlan plan, find_step_plan(prepared, arguments.plan));
  RunOptions options = arguments.run;
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  options.trace = !arguments.trace.empty();
  REGEN_ASSIGN(const MeasuredRun run, run_planned(prepared, plan.step, options));
  if (options.trace) {
    REGEN_ASSIGN(const std::string timeline, measured_trace(prepared, plan.plan(), run.trace));
    REGEN_TRY(write_file(arguments.trace, timeline));
  }
  if (!arguments.output.empty()) REGEN_TRY(write_file(arguments.output, write_plan(plan.plan())));
  if (arguments.json) return print_json(run_json(prepared, plan, run));
  return print(run_text(prepared, plan, run));
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "run", "Run a captured step under a plan and measure it",
                            "  regen run resnet50.program --budget 50%\n"
                            "  regen run resnet50.program plan.json --trace timeline.json");
  auto arguments = std::make_shared<RunArguments>();
  add_program(verb, arguments->program);
  add_plan_arguments(verb, arguments->plan);
  add_parsed(verb, "--steps", arguments->run.steps, whole_number(1, 1'000'000'000), "N",
             "How many steps are run (default 5)");
  add_parsed(verb, "--seed", arguments->seed, whole_number(0, INT64_MAX), "N",
             "Of the random numbers of the first step (default 0)");
  verb.add_flag("--debug", arguments->run.debug,
                "Poison released memory and check where every result lies");
  verb.add_option("--trace", arguments->trace,
                  "Write the real timeline of the last step here, for Perfetto")
      ->type_name("FILE");
  add_output(verb, arguments->output, "Write the plan here");
  add_json(verb, arguments->json);
  set_action<RunArguments>(verb, action, arguments, run_run);
}

}  // namespace regen::cli
