// regen bench: what a plan costs and saves, measured: against keeping everything, and against the
// bare operators.
#include <algorithm>
#include <string>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/runtime/measured_run.h"
#include "cli/runtime/verbs.h"

namespace regen::cli {
namespace {

constexpr std::int64_t kHostTimeSteps = 10;

struct BenchArguments {
  ProgramArgument program;
  PlanArgument plan;
  RunOptions run{.warm_up = 3, .steps = 10};
  std::int64_t seed = 0;
  bool check_runtime = false;
  bool check_diff = false;
  bool json = false;
};

// One way to run the step. Without a plan there is no prediction.
struct Row {
  std::string name;
  const StepPlan* plan = nullptr;
  MeasuredRun run;
};

struct Comparison {
  Row direct;
  Row keep_all;
  Row planned;
  execute::HostTime host;

  // Host time per op that is the executor's own.
  double dispatch_seconds() const {
    return (host.seconds - host.call_seconds) /
           static_cast<double>(std::max<std::size_t>(1, host.calls));
  }
  // How much longer an op takes than in a loop of bare operators, which must ask torch for memory.
  double beyond_direct_seconds(std::size_t ops) const {
    return (keep_all.run.median() - direct.run.median()) /
           static_cast<double>(std::max<std::size_t>(1, ops));
  }
};

double ratio(double value, double base) {
  return base > 0 ? value / base : 0;
}

Json row_json(const Row& row, const Comparison& all) {
  const MeasuredRun& base = all.keep_all.run;
  Json json{{"name", row.name},
            {"seconds", json_number(row.run.median())},
            {"time_ratio", json_number(ratio(row.run.median(), base.median()))},
            {"peak_bytes", row.run.peak_bytes},
            {"peak_ratio", json_number(ratio(static_cast<double>(row.run.peak_bytes),
                                             static_cast<double>(base.peak_bytes)))}};
  if (row.plan == nullptr) return json;
  json["driver_bytes"] = row.run.driver_bytes;
  json["predicted_seconds"] = json_number(row.plan->simulation().cost);
  json["predicted_peak_bytes"] = row.plan->simulation().peak_bytes;
  json["unforeseen"] = row.run.unforeseen();
  return json;
}

Json comparison_json(const PreparedStep& prepared, const StepPlan& plan, const Comparison& all) {
  const std::size_t ops = prepared.graph().num_ops();
  return {{"program", prepared.program().name},
          {"device", prepared.device().name()},
          {"planner", plan.plan().planner},
          {"status", plan.status},
          {"budget_bytes", plan.budget ? Json(*plan.budget) : Json(nullptr)},
          {"ops", ops},
          {"direct", row_json(all.direct, all)},
          {"keep_all", row_json(all.keep_all, all)},
          {"plan", row_json(all.planned, all)},
          {"dispatch_microseconds", json_number(1e6 * all.dispatch_seconds())},
          {"beyond_direct_microseconds", json_number(1e6 * all.beyond_direct_seconds(ops))}};
}

std::string comparison_text(const PreparedStep& prepared, const Comparison& all) {
  using enum Table::Align;
  Table table({{"run"},
               {"time", kRight},
               {"ratio", kRight},
               {"predicted", kRight},
               {"peak", kRight},
               {"ratio", kRight},
               {"predicted", kRight}});
  for (const Row* row : {&all.direct, &all.keep_all, &all.planned}) {
    const MeasuredRun& base = all.keep_all.run;
    const Simulation* predicted = row->plan == nullptr ? nullptr : &row->plan->simulation();
    table.add({row->name, format_cost(row->run.median(), CostUnit::kSecond),
               decimals(ratio(row->run.median(), base.median()), 3),
               predicted ? format_cost(predicted->cost, CostUnit::kSecond) : "",
               format_bytes(row->run.peak_bytes),
               decimals(ratio(static_cast<double>(row->run.peak_bytes),
                              static_cast<double>(base.peak_bytes)),
                        3),
               predicted ? format_bytes(predicted->peak_bytes) : ""});
  }
  const std::size_t ops = prepared.graph().num_ops();
  return table.text() + "\n" +
         facts({{"program", prepared.program().name + " on " + prepared.device().name() + ", " +
                                format_count(ops, "op")},
                {"dispatch", decimals(1e6 * all.dispatch_seconds(), 2) +
                                 " us of host time per op beside the operator itself"},
                {"beyond", decimals(1e6 * all.beyond_direct_seconds(ops), 2) +
                               " us per op over calling the operators directly"},
                {"unforeseen", format_count(all.planned.run.unforeseen(), "allocation")}});
}

Status compare(const BenchArguments& arguments, PreparedStep& prepared, const StepPlan& plan) {
  REGEN_ASSIGN(const StepPlan everything, keep_all_plan(prepared));
  Comparison all{{"direct"}, {"keep_all", &everything}, {plan.plan().planner, &plan}, {}};
  REGEN_ASSIGN(all.direct.run, run_directly(prepared, arguments.run));
  REGEN_ASSIGN(all.keep_all.run, run_planned(prepared, everything.step, arguments.run));
  REGEN_ASSIGN(all.planned.run, run_planned(prepared, plan.step, arguments.run));
  REGEN_ASSIGN(all.host, host_time(prepared, everything.step, kHostTimeSteps));
  if (arguments.json) return print_json(comparison_json(prepared, plan, all));
  return print(comparison_text(prepared, all));
}

// Time and peak over 20 iterations after 10 that do not count.
Status check_runtime(const BenchArguments& arguments, PreparedStep& prepared,
                     const StepPlan& plan) {
  RunOptions options = arguments.run;
  options.warm_up = 10;
  options.steps = 20;
  REGEN_ASSIGN(const MeasuredRun run, run_planned(prepared, plan.step, options));
  double sum = 0;
  for (const double seconds : run.seconds) sum += seconds;
  const auto [least, most] = std::minmax_element(run.seconds.begin(), run.seconds.end());
  if (arguments.json) {
    return print_json({{"program", prepared.program().name},
                       {"planner", plan.plan().planner},
                       {"iterations", run.seconds.size()},
                       {"warm_up", options.warm_up},
                       {"mean_seconds", json_number(sum / 20)},
                       {"median_seconds", json_number(run.median())},
                       {"least_seconds", json_number(*least)},
                       {"most_seconds", json_number(*most)},
                       {"predicted_seconds", json_number(plan.simulation().cost)},
                       {"peak_bytes", run.peak_bytes},
                       {"predicted_peak_bytes", plan.simulation().peak_bytes}});
  }
  const auto time = [](double seconds) { return format_cost(seconds, CostUnit::kSecond); };
  return print(facts({{"iterations", "20 after 10 to warm up"},
                      {"time", time(sum / 20) + " on average, median " + time(run.median()) +
                                   ", from " + time(*least) + " to " + time(*most) +
                                   "; predicted " + time(plan.simulation().cost)},
                      {"peak", full_bytes(run.peak_bytes) + "; predicted " +
                                   full_bytes(plan.simulation().peak_bytes)}}));
}

// Another one than by default; not the same one in another place.
bool takes_other_algorithm(const Graph& graph, const Step& step) {
  return step.kind() == StepKind::kCompute && step.choice() > 0 &&
         !graph.overwrites(step.variant(graph)).valid();
}

bool takes_other_algorithms(const Graph& graph, const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [&](const Step& step) { return takes_other_algorithm(graph, step); });
}

// Everything kept, by the algorithms that another plan has chosen.
Result<StepPlan> keep_all_like(PreparedStep& prepared, const Plan& plan) {
  const Graph& graph = prepared.graph();
  IdVector<OpId, std::size_t> choice(graph.num_ops(), 0);
  for (const Step& step : plan.steps) {
    if (takes_other_algorithm(graph, step)) choice[step.op()] = step.choice();
  }
  REGEN_ASSIGN(const StepPlan everything, keep_all_plan(prepared));
  Plan changed = everything.plan();
  for (Step& step : changed.steps) {
    if (step.kind() != StepKind::kCompute || choice[step.op()] == 0) continue;
    step = Step::compute(step.op(), choice[step.op()]);
  }
  changed.addresses.reset();
  REGEN_ASSIGN(session::PlannedStep accepted,
               prepared.recorded.accept(std::move(changed), everything.step.report().origin));
  return StepPlan{std::move(accepted), everything.status, everything.budget};
}

// One step each from the same contents and seed, with everything kept, with the plan, and without
// a plan: all that they leave behind must have the same bits. Where the plan takes other algorithms
// than by default, all of them take these: the bare operators come last, on a thread for which
// they are remembered.
Status check_diff(const BenchArguments& arguments, PreparedStep& prepared, const StepPlan& plan) {
  RunOptions options = arguments.run;
  options.warm_up = 0;
  options.steps = 1;
  REGEN_ASSIGN(const StepPlan everything, keep_all_like(prepared, plan.plan()));
  REGEN_ASSIGN(const MeasuredRun kept, run_planned(prepared, everything.step, options));
  REGEN_ASSIGN(const MeasuredRun planned, run_planned(prepared, plan.step, options));
  REGEN_ASSIGN(const MeasuredRun direct, run_directly(prepared, options));
  std::string difference = first_difference(direct.left, kept.left);
  if (!difference.empty()) difference += " between keep_all and the bare operators";
  if (difference.empty()) {
    difference = first_difference(kept.left, planned.left);
    if (!difference.empty()) difference += " between the plan and keep_all";
  }
  if (arguments.json) {
    REGEN_TRY(
        print_json({{"program", prepared.program().name},
                    {"planner", plan.plan().planner},
                    {"equal", difference.empty()},
                    {"compared", kept.left.size()},
                    {"other_algorithms", takes_other_algorithms(prepared.graph(), plan.plan())},
                    {"difference", difference},
                    {"checksum", hex(checksum(kept.left))}}));
  }
  // Not infeasible, but like it an answer that is a no: status 1.
  if (!difference.empty()) return infeasible(difference + ", expected the same bits");
  if (arguments.json) return {};
  return print("equal: " + format_count(kept.left.size(), "tensor") +
               " the same bit for bit with the plan, with everything kept and without a plan, "
               "checksum " +
               hex(checksum(kept.left)) + "\n");
}

Status run_bench(const BenchArguments& given) {
  BenchArguments arguments = given;
  arguments.run.seed = static_cast<std::uint64_t>(given.seed);
  REGEN_TRY(check_planner(arguments.plan));
  REGEN_ASSIGN(PreparedStep prepared, prepare_step(arguments.program, {}));
  REGEN_ASSIGN(const StepPlan plan, find_step_plan(prepared, arguments.plan));
  if (arguments.check_diff) return check_diff(arguments, prepared, plan);
  if (arguments.check_runtime) return check_runtime(arguments, prepared, plan);
  return compare(arguments, prepared, plan);
}

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "bench", "Compare a captured step with and without a plan",
                            "  regen bench resnet50.program --budget 50%\n"
                            "  regen bench resnet50.program plan.json --check-diff");
  auto arguments = std::make_shared<BenchArguments>();
  add_program(verb, arguments->program);
  add_plan_arguments(verb, arguments->plan);
  add_parsed(verb, "--steps", arguments->run.steps, whole_number(1, 1'000'000), "N",
             "Timed steps of each kind (default 10)");
  add_parsed(verb, "--warm-up", arguments->run.warm_up, whole_number(0, 1'000'000), "N",
             "Steps before them (default 3)");
  add_parsed(verb, "--seed", arguments->seed, whole_number(0, INT64_MAX), "N",
             "Of the random numbers of the first step (default 0)");
  CLI::Option* runtime =
      verb.add_flag("--check-runtime", arguments->check_runtime,
                    "Only time and peak of the plan, over 20 iterations after 10");
  verb.add_flag("--check-diff", arguments->check_diff,
                "Only whether one step under the plan gives the same bits; status 1 if not")
      ->excludes(runtime);
  add_json(verb, arguments->json);
  set_action<BenchArguments>(verb, action, arguments, run_bench);
}

}  // namespace regen::cli
