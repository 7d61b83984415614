#include "cli/output/schedule_text.h"

#include "cli/output/output.h"
#include "regen/base/file.h"
#include "regen/base/json.h"
#include "regen/published/lower_sets/format/schedule_run.h"
#include "regen/published/lower_sets/format/schedule_text.h"

namespace regen::cli {
namespace {

// The file that a graph came from. Of any other graph the numbers of blocks would be made up.
Result<published::LowerSetFile> file_of(const Graph& graph) {
  const auto attributes = parse_json(graph.attributes(), "");
  if (!attributes.ok() || !attributes->is_object() || !attributes->contains("lower_sets")) {
    return bad_input("graph '" + graph.name() +
                     "' is not from a lower-set file, expected one for a schedule of compute and "
                     "forget orders");
  }
  return published::lower_sets_from_graph(graph);
}

}  // namespace

Status simulate_schedule(const Graph& graph, const std::string& text, const std::string& path,
                         bool json) {
  REGEN_ASSIGN(const published::LowerSetFile file, file_of(graph));
  REGEN_ASSIGN(const published::Schedule schedule, published::read_schedule(text, path));
  REGEN_ASSIGN(const published::ScheduleRun run, published::run_schedule(file, schedule, path));
  const double overhead = run.base_cost > 0 ? run.overhead_cost / run.base_cost : 0;
  if (json) {
    return print_json({{"graph", graph.name()},
                       {"orders", schedule.size()},
                       {"base_cost", json_number(run.base_cost)},
                       {"overhead_cost", json_number(run.overhead_cost)},
                       {"overhead", json_number(overhead)},
                       {"peak_bytes", run.peak_bytes},
                       {"activation_peak_bytes", run.activation_peak_bytes},
                       {"peak_line", run.peak_line},
                       {"recomputed", run.recomputed}});
  }
  return print(facts({
      {"cost", format_grouped(static_cast<std::int64_t>(run.overhead_cost)) + " re-run of " +
                   format_grouped(static_cast<std::int64_t>(run.base_cost)) + ", " +
                   percent(overhead)},
      {"memory", full_bytes(run.peak_bytes) + " at line " + std::to_string(run.peak_line) +
                     ", parameters and inputs left out"},
      {"without",
       full_bytes(run.activation_peak_bytes) + " without the gradients of parameters and inputs"},
      {"orders", format_grouped(static_cast<std::int64_t>(schedule.size())) + ", " +
                     format_grouped(static_cast<std::int64_t>(run.recomputed)) + " recomputations"},
  }));
}

Status write_schedule_file(const Graph& graph, const Plan& plan, const std::string& path) {
  REGEN_ASSIGN(const published::Schedule schedule, published::schedule_from_plan(graph, plan));
  return write_file(path, published::write_schedule(schedule));
}

}  // namespace regen::cli
