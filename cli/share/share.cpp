// regen share: several jobs on one device (docs/explanation/sharing.md).
#include "cli/options/options.h"
#include "cli/share/share_verbs.h"
#include "regen/base/text.h"
#include "regen/share/protocol/address.h"

namespace regen::cli {

void add_socket(CLI::App& verb, std::string& path) {
  verb.add_option("--socket", path,
                  "The daemon's socket (default: REGEN_SHARE_SOCKET, else in XDG_RUNTIME_DIR)")
      ->type_name("PATH");
}

void add_interval(CLI::App& verb, double& seconds) {
  const auto parse = [](std::string_view text) -> Result<double> {
    const auto found = parse_double(text);
    if (found.ok() && *found >= 0.05 && *found <= 3600) return *found;
    return bad_input("bad interval " + in_quotes(text) + ", expected seconds from 0.05 to 3600");
  };
  add_parsed(verb, "--interval", seconds, parse, "SECONDS", "Between two showings (default 1)");
}

std::string chosen_socket(const std::string& path) {
  return path.empty() ? share::default_socket() : path;
}

void add_share(CLI::App& app, Action& action) {
  CLI::App& verb = add_verb(app, "share", "Let several jobs share a device",
                            "  regen share serve --device gpu0:80GiB\n"
                            "  regen share run --priority 2 --memory 8GiB -- python infer.py\n"
                            "  regen share top\n"
                            "  regen share simulate trace.json --devices 100");
  verb.require_subcommand(0, 1);
  add_share_serve(verb, action);
  add_share_status(verb, action);
  add_share_top(verb, action);
  add_share_run(verb, action);
  add_share_set(verb, action);
  add_share_simulate(verb, action);
  add_share_trace(verb, action);
  verb.allow_extras();  // only now: the verbs above would inherit it
  // The library would only say that something is required.
  verb.callback([&verb, &action] {
    const auto extras = verb.remaining();
    if (!verb.get_subcommands().empty() && extras.empty()) return;
    const std::string found = extras.empty() ? "nothing" : in_quotes(extras.front());
    action = [found] {
      return bad_input("regen share: found " + found +
                       ", expected one of serve, status, top, run, set, simulate, trace");
    };
  });
}

}  // namespace regen::cli
