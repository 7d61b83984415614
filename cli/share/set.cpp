// regen share set: changes a job that runs.
#include "cli/options/options.h"
#include "cli/share/share_verbs.h"
#include "regen/share/client/channel.h"
#include "regen/share/scheduler/scheduler.h"

namespace regen::cli {
namespace {

struct ShareSetArguments {
  std::string socket;
  std::string job;
  share::JobChange change;
};

Status run_set(const ShareSetArguments& arguments) {
  Json body = to_json(arguments.change);
  if (body.empty()) {
    return bad_input(
        "regen share set: found nothing to change, expected --priority, --weight or "
        "--memory");
  }
  body["job"] = arguments.job;
  const auto changed =
      share::ask(chosen_socket(arguments.socket), {share::MessageType::kChange, std::move(body)},
                 share::MessageType::kChanged);
  return changed.ok() ? Status() : Status(changed.error());
}

}  // namespace

void add_share_set(CLI::App& share, Action& action) {
  CLI::App& verb = add_verb(share, "set", "Change priority, weight or memory of a job that runs",
                            "  regen share set train --priority 1 --memory 20GiB");
  auto arguments = std::make_shared<ShareSetArguments>();
  add_socket(verb, arguments->socket);
  verb.add_option("JOB", arguments->job, "Its name, or its identity where names are not unique")
      ->required()
      ->type_name("");
  add_parsed(verb, "--priority", arguments->change.priority, share::parse_priority, "N",
             "Higher goes first, at once");
  add_parsed(verb, "--weight", arguments->change.weight, share::parse_weight, "W",
             "Share among jobs of the same priority");
  add_parsed(verb, "--memory", arguments->change.memory, parse_bytes, "BYTES",
             "What the job may use; it switches plans between two steps");
  set_action<ShareSetArguments>(verb, action, arguments, run_set);
}

}  // namespace regen::cli
