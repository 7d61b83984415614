// regen share trace: made-up traces for `regen share simulate`.
#include <limits>

#include "cli/options/options.h"
#include "cli/share/share_verbs.h"
#include "regen/base/file.h"
#include "regen/base/text.h"
#include "regen/share/simulation/trace_generator.h"

namespace regen::cli {
namespace {

struct ShareTraceArguments {
  share::TraceOptions options;
  std::int64_t seed = 0;
  std::string output = "-";
  bool csv = false;
};

// Reads a number in [low, high].
auto number(double low, double high) {
  return [low, high](std::string_view text) -> Result<double> {
    const auto value = parse_double(text);
    if (value.ok() && *value >= low && *value <= high) return *value;
    return bad_input("bad number " + in_quotes(text) + ", expected one from " + format_exact(low) +
                     " to " + format_exact(high));
  };
}

Result<double> parse_tail(std::string_view text) {
  if (text == "none") return std::numeric_limits<double>::infinity();
  const auto value = parse_double(text);
  if (value.ok() && *value >= 1.01 && *value <= 100) return *value;
  return bad_input("bad tail " + in_quotes(text) + ", expected a number from 1.01 to 100, or none");
}

Status run_trace(const ShareTraceArguments& arguments) {
  share::TraceOptions options = arguments.options;
  options.seed = static_cast<std::uint64_t>(arguments.seed);
  REGEN_ASSIGN(const share::Trace trace, share::make_trace(options));
  return write_file(arguments.output,
                    arguments.csv ? write_trace_csv(trace) : write_trace_json(trace));
}

}  // namespace

void add_share_trace(CLI::App& share, Action& action) {
  CLI::App& verb = add_verb(share, "trace", "Make up a trace of jobs for simulate",
                            "  regen share trace --jobs 1000 --devices 100 --seed 1 -o trace.json");
  auto arguments = std::make_shared<ShareTraceArguments>();
  share::TraceOptions& options = arguments->options;
  add_parsed(verb, "--jobs", options.jobs, whole_number(1, std::int64_t{share::kMaxTraceJobs}), "N",
             "How many (default 100)");
  add_parsed(verb, "--devices", options.devices, whole_number(1, share::kMaxDevices), "N",
             "Devices that the load is meant for (default 1)");
  add_parsed(verb, "--device-memory", options.device_bytes, parse_bytes, "BYTES",
             "Of each device (default 80GiB)");
  add_parsed(verb, "--seed", arguments->seed,
             whole_number(0, std::numeric_limits<std::int64_t>::max()), "N",
             "The same seed gives the same trace (default 0)");
  add_parsed(verb, "--load", options.load, number(0.01, 100), "X",
             "Device time asked for, over what the devices have (default 0.8)");
  add_parsed(verb, "--mean", options.mean_seconds, number(0.01, 1e6), "SECONDS",
             "Device time of a job (default 600)");
  add_parsed(verb, "--tail", options.tail, parse_tail, "X",
             "Exponent of the Pareto durations, or none: exponential (default 1.5)");
  add_parsed(verb, "--inference", options.inference, number(0, 1), "X",
             "Part of the jobs that answer requests (default 0.1)");
  add_parsed(verb, "--priorities", options.priorities, whole_number(1, 1000), "N",
             "Levels; the highest is for inference (default 3)");
  add_parsed(verb, "--deadlines", options.deadlines, number(0, 1), "X",
             "Part of the jobs that have one (default 0.3)");
  verb.add_flag("--csv", arguments->csv, "CSV instead of JSON");
  add_output(verb, arguments->output, "Where to write it (default -: standard output)");
  set_action<ShareTraceArguments>(verb, action, arguments, run_trace);
}

}  // namespace regen::cli
