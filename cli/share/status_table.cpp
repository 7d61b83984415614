#include "cli/share/status_table.h"

#include "cli/output.h"
#include "regen/base/text.h"

namespace regen::cli {
namespace {

std::string seconds(const Json& value) {
  return format_cost(value.get<double>(), CostUnit::kSecond);
}

std::string percentage(double fraction) {
  return decimals(100 * fraction, 1) + " %";
}

std::string state(const Json& job) {
  return job["asked_to_give_way"].get<bool>() ? "giving way" : job["state"].get<std::string>();
}

std::string jobs_table(const Json& jobs) {
  using enum Table::Align;
  Table table({{"job"},
               {"process", kRight},
               {"state"},
               {"priority", kRight},
               {"weight", kRight},
               {"share", kRight},
               {"used", kRight},
               {"memory", kRight},
               {"waited", kRight},
               {"longest", kRight},
               {"grants", kRight},
               {"preempted", kRight}});
  for (const Json& job : jobs) {
    table.add({on_one_line(job["name"].get<std::string>(), 30), job["process"].dump(), state(job),
               job["priority"].dump(), format_exact(job["weight"].get<double>()),
               percentage(job["share"].get<double>()), seconds(job["used_seconds"]),
               format_bytes(job["memory_bytes"].get<Bytes>()), seconds(job["waited_seconds"]),
               seconds(job["longest_wait_seconds"]), job["grants"].dump(),
               job["preemptions"].dump()});
  }
  return table.text();
}

std::string device_text(const Json& device, double age) {
  const double busy = device["busy_seconds"].get<double>();
  return bold(device["name"].get<std::string>()) + "  " +
         format_bytes(device["used_bytes"].get<Bytes>()) + " of " +
         format_bytes(device["bytes"].get<Bytes>()) + " admitted, busy " +
         percentage(age > 0 ? busy / age : 0) + ", " + format_count(device["jobs"].size(), "job") +
         " now, " + device["finished_jobs"].dump() + " finished\n" +
         (device["jobs"].empty() ? "" : jobs_table(device["jobs"]));
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
