#include "cli/share/status_table.h"

#include "cli/output/output.h"
#include "cli/output/visible_text.h"
#include "regen/base/text.h"

namespace regen::cli {
namespace {

std::string seconds(const Json& value) {
  return format_cost(value.get<double>(), CostUnit::kSecond);
}

std::string percentage(double fraction) {
  return decimals(100 * fraction, 1) + " %";
}

// On one line, and nothing that a terminal would not show.
std::string shown_name(const Json& job) {
  return on_one_line(visible_text(job["name"].get<std::string>(), true), 30);
}

// Of several things that are true, the one that an operator would act on.
std::string state(const Json& job, const Json& device) {
  const std::string memory = job["memory_state"].get<std::string>();
  if (job["over_limit"].get<bool>()) return "over its limit";
  if (job["asked_to_give_way"].get<bool>()) {
    return "giving way " + seconds(device["asked_to_give_way_seconds"]);
  }
  return memory == "settled" ? job["state"].get<std::string>() : memory;
}

std::string bytes(const Json& value) {
  return format_bytes(value.get<Bytes>());
}

std::string jobs_table(const Json& device) {
  using enum Table::Align;
  Table table({{"job"},
               {"process", kRight},
               {"state"},
               {"priority", kRight},
               {"weight", kRight},
               {"share", kRight},
               {"used", kRight},
               {"memory", kRight},
               {"limit", kRight},
               {"in use", kRight},
               {"waited", kRight},
               {"longest", kRight},
               {"grants", kRight},
               {"preempted", kRight}});
  for (const Json& job : device["jobs"]) {
    table.add({shown_name(job), job["process"].dump(), state(job, device), job["priority"].dump(),
               format_exact(job["weight"].get<double>()), percentage(job["share"].get<double>()),
               seconds(job["used_seconds"]), bytes(job["memory_bytes"]), bytes(job["limit_bytes"]),
               bytes(job["used_bytes"]), seconds(job["waited_seconds"]),
               seconds(job["longest_wait_seconds"]), job["grants"].dump(),
               job["preemptions"].dump()});
  }
  return table.text();
}

std::string newcomers_text(const Json& newcomers) {
  std::string text;
  for (const Json& job : newcomers) {
    text += "  waits for memory: " + shown_name(job) + " (process " + job["process"].dump() +
            "), " + bytes(job["memory_bytes"]) + ", at least " + bytes(job["least_bytes"]) +
            ", for " + seconds(job["waited_seconds"]) + "\n";
  }
  return text;
}

std::string device_text(const Json& device, double age) {
  const double busy = device["busy_seconds"].get<double>();
  return bold(device["name"].get<std::string>()) + "  " + bytes(device["used_bytes"]) + " of " +
         bytes(device["bytes"]) + " admitted" +
         (device["in_turns"].get<bool>() ? " in turns" : "") + ", busy " +
         percentage(age > 0 ? busy / age : 0) + ", " + format_count(device["jobs"].size(), "job") +
         " now, " + device["finished_jobs"].dump() + " finished" +
         (device["closed"].get<bool>() ? ", closed: a former holder is still in its last quantum"
                                       : "") +
         "\n" + (device["jobs"].empty() ? "" : jobs_table(device)) +
         newcomers_text(device["newcomers"]);
}

}  // namespace

std::string share_status_text(const Json& report) {
  std::string text;
  for (const Json& device : report["devices"]) {
    text += device_text(device, report["age_seconds"].get<double>());
  }
  return text;
}

}  // namespace regen::cli
