// regen share status: what the daemon does now.
#include <algorithm>
#include <chrono>
#include <thread>

#include "cli/interrupt.h"
#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/share/share_verbs.h"
#include "cli/share/status_table.h"
#include "regen/share/client/channel.h"
#include "regen/share/report/prometheus.h"

namespace regen::cli {
namespace {

struct ShareStatusArguments {
  std::string socket;
  bool json = false;
  bool prometheus = false;
  bool watch = false;
  double interval = 1;
};

constexpr const char* kClearScreen = "\x1b[H\x1b[2J";

Result<Json> fetch(const ShareStatusArguments& arguments) {
  return share::ask(chosen_socket(arguments.socket), {share::MessageType::kStatus, Json::object()},
                    share::MessageType::kReport);
}

Status show(const ShareStatusArguments& arguments) {
  REGEN_ASSIGN(const Json report, fetch(arguments));
  if (arguments.json) return print_json(report);
  if (arguments.prometheus) return print(share::prometheus_text(report));
  const bool screen = arguments.watch && colours_wanted();
  return print((screen ? kClearScreen : "") + share_status_text(report));
}

Status run_status(const ShareStatusArguments& arguments) {
  if (!arguments.watch) return show(arguments);
  InterruptGuard interrupt;
  while (!interrupt.interrupted()) {
    REGEN_TRY(show(arguments));
    // In small steps, so that Ctrl-C ends it soon.
    constexpr double kStep = 0.05;
    for (double left = arguments.interval; left > 0 && !interrupt.interrupted(); left -= kStep) {
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(left, kStep)));
    }
  }
  return {};
}

}  // namespace

void add_share_status(CLI::App& share, Action& action) {
  CLI::App& verb = add_verb(share, "status", "Show jobs, shares, memory, waiting and preemptions",
                            "  regen share status --watch");
  auto arguments = std::make_shared<ShareStatusArguments>();
  add_socket(verb, arguments->socket);
  add_json(verb, arguments->json);
  verb.add_flag("--prometheus", arguments->prometheus, "Print metrics as Prometheus text")
      ->excludes(verb.get_option("--json"));
  verb.add_flag("--watch", arguments->watch, "Show it again and again until Ctrl-C");
  add_interval(verb, arguments->interval);
  set_action<ShareStatusArguments>(verb, action, arguments, run_status);
}

}  // namespace regen::cli
