// regen max-batch: the largest batch that each planner can train.
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/options/batched_graph.h"
#include "cli/options/options.h"
#include "cli/options/planner_options.h"
#include "cli/options/planners.h"
#include "cli/output/output.h"
#include "cli/verbs/verbs.h"
#include "regen/base/parallel.h"
#include "regen/base/progress/progress.h"
#include "regen/search/registry.h"
#include "regen/search/services/max_batch.h"

namespace regen::cli {
namespace {

struct MaxBatchArguments {
  GraphArgument graph;
  std::string memory;
  std::vector<std::string> planners{"keep_all", "chen_sqrt", "chen_greedy"};
  PlannerArguments options;
  Limits limits;
  search::BatchGrid grid;
  bool no_compute_cap = false;
  std::int64_t threads = 0;
  bool json = false;
};

Result<search::BatchGrid> parse_grid(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto start = whole_number(1, kMaxBatch)(text.substr(0, colon));
  const auto step = whole_number(
      1, kMaxBatch)(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1));
  if (start.ok() && step.ok()) return search::BatchGrid{*start, *step};
  return bad_input("bad grid '" + std::string(text.substr(0, 60)) +
                   "', expected START:STEP such as 4:8, both at least 1");
}

// The model without a batch, which is what the search is for.
Result<std::string> model_name(const std::string& text) {
  const std::string name = names_zoo(text) ? text.substr(4) : text;
  if (name.find('@') != std::string::npos) {
    return bad_input("max-batch: '" + text + "' has a batch, expected zoo:NAME without one");
  }
  REGEN_ASSIGN(const ZooReference reference, parse_zoo_reference(name));
  REGEN_ASSIGN(const ZooSummary summary, zoo_summary(reference.name));
  return summary.name;
}

Result<Bytes> memory_bytes(const MaxBatchArguments& arguments) {
  if (arguments.memory == "device") {
    if (!arguments.graph.device) {
      return bad_input("--memory: 'device' without a device, expected --device NAME as well");
    }
    REGEN_ASSIGN(const Device device, find_device(*arguments.graph.device));
    return device.memory_bytes;
  }
  const auto bytes = parse_bytes(arguments.memory);
  return bytes.ok() ? bytes : bad_input("--memory: " + bytes.error().message);
}

// The device's link; the same for every batch.
Result<Link> link_of(const GraphArgument& argument, const std::string& model) {
  GraphArgument smallest = argument;
  smallest.text = "zoo:" + model;
  REGEN_ASSIGN(const LoadedGraph loaded, load_graph(smallest));
  return loaded.link;
}

Result<search::MaxBatchProblem> make_problem(const MaxBatchArguments& arguments,
                                             const std::string& model, Bytes memory) {
  search::MaxBatchProblem problem{.memory = memory, .options = arguments.options.resolved()};
  problem.graph_at = zoo_at_batch(arguments.graph, model);
  REGEN_ASSIGN(problem.link, link_of(arguments.graph, model));
  problem.compute_cap = !arguments.no_compute_cap;
  problem.grid = arguments.grid;
  problem.limits = arguments.limits;
  return problem;
}

Result<std::vector<search::MaxBatchAnswer>> solve_all(const MaxBatchArguments& arguments,
                                                      search::MaxBatchProblem problem) {
  const InterruptGuard guard;
  problem.limits.interrupt = guard.flag();
  REGEN_ASSIGN(const std::vector<const search::Planner*> planners,
               published::every_planner().find_all(arguments.planners));
  std::vector<std::optional<Result<search::MaxBatchAnswer>>> results(arguments.planners.size());
  Progress progress({.stage = "max-batch", .pieces = "planners", .total = results.size()});
  std::atomic<std::int64_t> largest = 0;
  problem.observer = [&](std::int64_t batch) {
    if (batch > largest) progress.say("batch " + std::to_string(largest = batch) + " fits");
  };
  parallel_for(results.size(), static_cast<int>(arguments.threads), [&](std::size_t i) {
    results[i] = search::max_batch(*planners[i], problem);
    progress.advance();
  });
  std::vector<search::MaxBatchAnswer> answers;
  for (auto& result : results) {
    REGEN_ASSIGN(search::MaxBatchAnswer answer, std::move(*result));
    answers.push_back(std::move(answer));
  }
  return answers;
}

Json answers_json(const std::string& model, Bytes memory, std::string_view accounting,
                  const std::vector<search::MaxBatchAnswer>& answers) {
  Json results = Json::array();
  Json excluded = Json::array();
  for (const search::MaxBatchAnswer& answer : answers) {
    if (answer.max_batch == 0) {
      excluded.push_back({{"planner", answer.planner}, {"limited_by", answer.limited_by}});
      continue;
    }
    results.push_back({{"planner", answer.planner},
                       {"max_batch", answer.max_batch},
                       {"peak_bytes", answer.peak_bytes},
                       {"cost", json_number(answer.cost)},
                       {"overhead", json_number(answer.overhead)},
                       {"upper_bound", answer.upper_bound},
                       {"limited_by", answer.limited_by}});
  }
  return {{"model", model},
          {"memory_bytes", memory},
          {"accounting", accounting},
          {"results", std::move(results)},
          {"excluded", std::move(excluded)}};
}

std::string answers_text(const std::vector<search::MaxBatchAnswer>& answers) {
  Table table({{"planner"},
               {"max batch", Table::Align::kRight},
               {"at most", Table::Align::kRight},
               {"peak", Table::Align::kRight},
               {"overhead", Table::Align::kRight},
               {"limited by"}});
  for (const search::MaxBatchAnswer& answer : answers) {
    const bool fits = answer.max_batch > 0;
    table.add({answer.planner, fits ? format_grouped(answer.max_batch) : "none",
               format_grouped(answer.upper_bound), fits ? format_bytes(answer.peak_bytes) : "",
               fits ? percent(answer.overhead) : "", answer.limited_by});
  }
  return table.text();
}

// Done when any planner can train something; proven impossible when no plan at all could.
Status verdict(const std::string& model, Bytes memory, const search::BatchGrid& grid,
               const std::vector<search::MaxBatchAnswer>& answers) {
  bool impossible = true;
  bool interrupted = false;
  for (const search::MaxBatchAnswer& answer : answers) {
    if (answer.max_batch > 0) return {};
    impossible = impossible && answer.limited_by == "structural_bound";
    interrupted = interrupted || answer.limited_by == "interrupted";
  }
  const std::string what = model + " at batch " + std::to_string(grid.start) + " in " +
                           format_grouped(memory) + " bytes";
  if (impossible) return infeasible("no plan can train " + what + ", expected more --memory");
  if (interrupted) return limit_reached("interrupted before any planner could train " + what);
  return limit_reached("none of the planners can train " + what +
                       ", expected another one (--planners auto) or more --memory");
}

Status run_max_batch(const MaxBatchArguments& arguments) {
  REGEN_TRY(arguments.options.check(arguments.planners));
  REGEN_ASSIGN(const std::string model, model_name(arguments.graph.text));
  REGEN_ASSIGN(const Bytes memory, memory_bytes(arguments));
  REGEN_ASSIGN(const search::MaxBatchProblem problem, make_problem(arguments, model, memory));
  REGEN_ASSIGN(const std::vector<search::MaxBatchAnswer> answers, solve_all(arguments, problem));
  if (arguments.json) {
    REGEN_TRY(
        print_json(answers_json(model, memory, arguments.options.accounting_name(), answers)));
  } else {
    REGEN_TRY(print(answers_text(answers)));
  }
  return verdict(model, memory, arguments.grid, answers);
}

}  // namespace

void add_max_batch(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(
      app, "max-batch", "The largest batch that each planner can train",
      "  regen max-batch zoo:vgg19 --memory 16e9 --planners keep_all,chen_sqrt,chen_greedy\n"
      "  regen max-batch zoo:vgg19 --memory 16e9 --accounting checkmate --grid 4:8 --json");
  auto arguments = std::make_shared<MaxBatchArguments>();
  verb.add_option("MODEL", arguments->graph.text, "zoo:NAME")->required()->type_name("");
  verb.add_option("--memory", arguments->memory, "Device bytes: 16e9, 80GiB, or device")
      ->required()
      ->type_name("BYTES");
  add_parsed(verb, "--planners", arguments->planners, split_list, "P,..",
             "Planners to compare (default keep_all,chen_sqrt,chen_greedy)");
  add_parsed(verb, "--grid", arguments->grid, parse_grid, "START:STEP",
             "Only batches START, START+STEP, ... (default 1:1, every batch)");
  verb.add_flag("--no-compute-cap", arguments->no_compute_cap,
                "Allow more recomputation than one forward pass");
  add_zoo_options(verb, arguments->graph);
  add_cost_options(verb, arguments->graph);
  add_planner_options(verb, arguments->options);
  add_limits(verb, arguments->limits);
  add_threads(verb, arguments->threads);
  add_json(verb, arguments->json);
  set_action<MaxBatchArguments>(verb, action, arguments, run_max_batch);
}

}  // namespace regen::cli
