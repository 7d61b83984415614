// regen pack: static addresses for given lifetimes.
#include <optional>
#include <string>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/verbs/verbs.h"
#include "regen/base/file.h"
#include "regen/plan/pack/lifetimes_csv.h"
#include "regen/plan/pack/pack.h"

namespace regen::cli {
namespace {

struct PackArguments {
  std::string input;
  std::optional<Bytes> capacity;
  Bytes alignment = 1;
  std::optional<std::int64_t> work_limit;
  double time_limit = Limits{}.seconds;
  std::string output;
  bool json = false;
};

// About a minute: with a capacity to meet, people wait longer than a planner does.
constexpr std::int64_t kPatientWork = 60'000'000;

const char* status_name(PackStatus status) {
  switch (status) {
    case PackStatus::kPacked:
      return "packed";
    case PackStatus::kInfeasible:
      return "infeasible";
    case PackStatus::kLimit:
      return "unknown";
  }
  return "unknown";
}

PackOptions pack_options(const PackArguments& arguments) {
  PackOptions options{.capacity = arguments.capacity, .alignment = arguments.alignment};
  if (arguments.capacity) options.limits.work = kPatientWork;
  if (arguments.work_limit) options.limits.work = *arguments.work_limit;
  options.limits.seconds = arguments.time_limit;
  return options;
}

Json packing_json(const PackArguments& arguments, const LifetimeTable& table,
                  const Packing& packing) {
  return {{"status", status_name(packing.status)},
          {"items", table.lifetimes.size()},
          {"capacity", arguments.capacity ? Json(*arguments.capacity) : Json(nullptr)},
          {"height", packing.height},
          {"max_load", packing.max_load},
          {"lower_bound", packing.lower_bound},
          {"ratio", json_number(packing.ratio())},
          {"seconds", json_number(packing.seconds)},
          {"work", packing.work}};
}

std::string packing_text(const LifetimeTable& table, const Packing& packing) {
  return facts(
      {{"items", format_grouped(static_cast<std::int64_t>(table.lifetimes.size()))},
       {"height", full_bytes(packing.height) + (packing.optimal() ? ", optimal" : "")},
       {"max load", full_bytes(packing.max_load) + ", ratio " + decimals(packing.ratio(), 4)},
       {"time", format_cost(packing.seconds, CostUnit::kSecond)}});
}

Status verdict(const PackArguments& arguments, const Packing& packing) {
  if (packing.status == PackStatus::kPacked) return {};
  const std::string capacity = format_grouped(*arguments.capacity);
  if (packing.status == PackStatus::kInfeasible) {
    return infeasible(arguments.input + ": proven not to fit into " + capacity +
                      " bytes, every packing needs at least " +
                      format_grouped(packing.lower_bound));
  }
  return limit_reached(
      arguments.input + ": no packing into " + capacity +
      " bytes found before the limit (--work-limit, --time-limit); the best takes " +
      format_grouped(packing.height) + ", at least " + format_grouped(packing.lower_bound) +
      " are needed");
}

Status run_pack(const PackArguments& arguments) {
  REGEN_ASSIGN(const std::string content, read_file(arguments.input));
  REGEN_ASSIGN(const LifetimeTable table, parse_lifetimes_csv(content, arguments.input));
  REGEN_ASSIGN(const Packing packing, pack(table.lifetimes, pack_options(arguments)));
  Status status = verdict(arguments, packing);
  if (status.ok() && !arguments.output.empty()) {
    REGEN_TRY(write_file(arguments.output, format_lifetimes_csv(table, packing.offsets)));
  }
  const bool packing_printed = status.ok() && arguments.output == "-";
  if (arguments.json && !packing_printed) {
    REGEN_TRY(print_json(packing_json(arguments, table, packing)));
  } else if (status.ok() && !packing_printed) {
    REGEN_TRY(print(packing_text(table, packing)));
  }
  return status;
}

}  // namespace

void add_pack(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "pack", "Give static addresses to lifetimes",
                            "  regen pack lifetimes.csv --capacity 1MiB -o offsets.csv");
  auto arguments = std::make_shared<PackArguments>();
  verb.add_option("FILE", arguments->input, "CSV with the columns id,lower,upper,size")
      ->required()
      ->type_name("");
  add_parsed(verb, "--capacity", arguments->capacity, parse_bytes, "BYTES",
             "Bytes to stay within; without it the height is made small");
  add_parsed(verb, "--alignment", arguments->alignment, whole_number(1, Bytes{1} << 40), "BYTES",
             "Offsets are multiples of this (default 1)");
  add_parsed(verb, "--work-limit", arguments->work_limit,
             whole_number(1, std::numeric_limits<std::int64_t>::max()), "N",
             "Counted work, about a microsecond each (default 60e6 with a capacity, else 2e6)");
  add_parsed(verb, "--time-limit", arguments->time_limit, parse_seconds, "SECONDS",
             "Stop the search after this time");
  add_output(verb, arguments->output, "Write the CSV with offsets here; - is standard output");
  add_json(verb, arguments->json);
  set_action<PackArguments>(verb, action, arguments, run_pack);
}

}  // namespace regen::cli
