// regen share simulate: what a policy would do with a trace.
#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/share/share_verbs.h"
#include "regen/base/file.h"
#include "regen/base/text.h"
#include "regen/share/simulation/summary.h"

namespace regen::cli {
namespace {

using share::Distribution;
using share::Policy;
using share::Summary;

struct ShareSimulateArguments {
  std::string trace;
  std::optional<std::int64_t> devices;
  std::optional<Bytes> memory;
  std::vector<Policy> policies;
  double turn = share::to_seconds(share::SimulationOptions{}.turn);
  double quantum = 0;
  bool json = false;
  bool csv = false;
};

Result<std::vector<Policy>> parse_policies(std::string_view text) {
  std::vector<std::pair<std::string, Policy>> names;
  for (std::size_t i = 0; i < share::kPolicies; ++i) {
    const auto policy = static_cast<Policy>(i);
    names.emplace_back(share::to_string(policy), policy);
  }
  REGEN_ASSIGN(const std::vector<std::string> parts, split_list(text));
  std::vector<Policy> policies;
  for (const std::string& part : parts) {
    REGEN_ASSIGN(const Policy policy, one_of(names)(part));
    policies.push_back(policy);
  }
  return policies;
}

Result<double> parse_turn(std::string_view text) {
  const auto seconds = parse_double(text);
  if (seconds.ok() && *seconds >= 1e-6 && *seconds <= 1e6) return *seconds;
  return bad_input("bad time " + in_quotes(text) + ", expected seconds from 0.000001 to 1000000");
}

Result<double> parse_quantum(std::string_view text) {
  const auto seconds = parse_double(text);
  if (seconds.ok() && *seconds >= 0 && *seconds <= 1e6) return *seconds;
  return bad_input("bad time " + in_quotes(text) + ", expected seconds from 0 to 1000000");
}

share::SimulationOptions simulation_options(const ShareSimulateArguments& arguments,
                                            const share::Trace& trace) {
  share::SimulationOptions options{.turn = share::from_seconds(arguments.turn),
                                   .quantum = share::from_seconds(arguments.quantum)};
  options.devices = arguments.devices.value_or(trace.devices.value_or(options.devices));
  options.device_bytes =
      arguments.memory.value_or(trace.device_bytes.value_or(options.device_bytes));
  return options;
}

std::string seconds(double value) {
  return format_cost(value, CostUnit::kSecond);
}

std::string table_text(const std::vector<Summary>& summaries) {
  using enum Table::Align;
  Table table({{"policy"},
               {"completion", kRight},
               {"p50", kRight},
               {"p95", kRight},
               {"p99", kRight},
               {"waiting", kRight},
               {"p95", kRight},
               {"makespan", kRight},
               {"used", kRight},
               {"missed", kRight},
               {"fairness", kRight},
               {"preempted", kRight}});
  for (const Summary& summary : summaries) {
    const Distribution& completion = summary.completion;
    table.add({std::string(to_string(summary.policy)), seconds(completion.mean),
               seconds(completion.p50), seconds(completion.p95), seconds(completion.p99),
               seconds(summary.waiting.mean), seconds(summary.waiting.p95),
               seconds(summary.makespan), decimals(100 * summary.utilisation, 1) + " %",
               format_grouped(summary.missed) + "/" + format_grouped(summary.deadlines),
               decimals(summary.fairness, 3), format_grouped(summary.preemptions)});
  }
  return table.text();
}

std::string requests_text(const std::vector<Summary>& summaries) {
  if (summaries.front().request.count == 0) return "";
  using enum Table::Align;
  Table table({{"policy"},
               {"requests", kRight},
               {"answered in", kRight},
               {"p50", kRight},
               {"p95", kRight},
               {"p99", kRight}});
  for (const Summary& summary : summaries) {
    const Distribution& request = summary.request;
    table.add({std::string(to_string(summary.policy)),
               format_grouped(static_cast<std::int64_t>(request.count)), seconds(request.mean),
               seconds(request.p50), seconds(request.p95), seconds(request.p99)});
  }
  return "\n" + table.text();
}

std::string csv_text(const std::vector<Summary>& summaries) {
  std::string text;
  for (const Summary& summary : summaries) {
    std::string names;
    std::string values;
    const Json json = share::to_json(summary);
    const auto add = [&](const std::string& name, const Json& value) {
      names += (names.empty() ? "" : ",") + name;
      values += (values.empty() ? "" : ",") + (value.is_null()     ? std::string()
                                               : value.is_string() ? value.get<std::string>()
                                                                   : value.dump());
    };
    for (const auto& [key, value] : json.items()) {
      if (!key.ends_with("_seconds") || key == "makespan_seconds") {
        add(key, value);
        continue;
      }
      for (const char* part : {"mean", "p50", "p95", "p99", "max"}) {
        add(key + "_" + part, value.is_null() ? Json(nullptr) : value[part]);
      }
    }
    if (text.empty()) text = names + "\n";
    text += values + "\n";
  }
  return text;
}

Status run_simulate(const ShareSimulateArguments& arguments) {
  REGEN_ASSIGN(const std::string content, read_file(arguments.trace));
  REGEN_ASSIGN(const share::Trace trace, share::parse_trace(content, arguments.trace));
  share::SimulationOptions options = simulation_options(arguments, trace);
  std::vector<Summary> summaries;
  for (const Policy policy : arguments.policies) {
    options.policy = policy;
    const auto replayed = share::replay(trace, options);
    if (!replayed.ok()) return in_file(arguments.trace, replayed.error());
    summaries.push_back(share::summarize(trace, *replayed, policy));
  }
  if (arguments.csv) return print(csv_text(summaries));
  if (!arguments.json) {
    return print(format_count(trace.jobs.size(), "job") + " on " +
                 format_count(static_cast<std::size_t>(options.devices), "device") + " of " +
                 format_bytes(options.device_bytes) + "\n" + table_text(summaries) +
                 requests_text(summaries));
  }
  Json json{{"trace", arguments.trace},       {"jobs", trace.jobs.size()},
            {"devices", options.devices},     {"device_bytes", options.device_bytes},
            {"turn_seconds", arguments.turn}, {"quantum_seconds", arguments.quantum}};
  for (const Summary& summary : summaries) json["policies"].push_back(share::to_json(summary));
  return print_json(json);
}

}  // namespace

void add_share_simulate(CLI::App& share, Action& action) {
  CLI::App& verb = add_verb(share, "simulate", "Replay a trace of jobs under several policies",
                            "  regen share simulate trace.json --devices 100\n"
                            "  regen share simulate trace.csv --policies priority,fcfs --json");
  auto arguments = std::make_shared<ShareSimulateArguments>();
  arguments->policies = {Policy::kPriority, Policy::kFair, Policy::kDeadline, Policy::kShortest,
                         Policy::kFcfs};
  verb.add_option("TRACE", arguments->trace,
                  "JSON or CSV (docs/reference/formats.md); - is standard input")
      ->required()
      ->type_name("");
  add_parsed(verb, "--devices", arguments->devices, whole_number(1, share::kMaxDevices), "N",
             "Devices (default: what the trace says, else 1)");
  add_parsed(verb, "--device-memory", arguments->memory, parse_bytes, "BYTES",
             "Of each device (default: what the trace says, else 80GiB)");
  add_parsed(verb, "--policies", arguments->policies, parse_policies, "P,..",
             "priority, fair, deadline, shortest, fcfs (default: all)");
  add_parsed(verb, "--turn", arguments->turn, parse_turn, "SECONDS",
             "Of priority and fair, as in serve (default 1)");
  add_parsed(verb, "--quantum", arguments->quantum, parse_quantum, "SECONDS",
             "A holder gives way at the end of a quantum of this length (default 0: at once)");
  add_json(verb, arguments->json);
  verb.add_flag("--csv", arguments->csv, "Print a CSV table")->excludes(verb.get_option("--json"));
  set_action<ShareSimulateArguments>(verb, action, arguments, run_simulate);
}

}  // namespace regen::cli
