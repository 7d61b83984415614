// regen share serve: the daemon.
#include <poll.h>
#include <unistd.h>

#include "cli/options/options.h"
#include "cli/output/output.h"
#include "cli/share/share_verbs.h"
#include "regen/base/text.h"
#include "regen/share/daemon/daemon.h"

namespace regen::cli {
namespace {

struct ShareServeArguments {
  std::string socket;
  std::vector<std::string> devices;
  unsigned mode = share::DaemonOptions{}.mode;
  double turn = share::to_seconds(share::DaemonOptions{}.turn);
  double settle = share::to_seconds(share::DaemonOptions{}.settle);
  double admission = share::to_seconds(share::DaemonOptions{}.admission);
  double patience = share::to_seconds(share::DaemonOptions{}.holder_patience);
  bool kill_hung = false;
  std::string policy;
  std::optional<share::PageAddress> page;
  bool quiet = false;
  std::int64_t max_connections = 1024;
};

// A line for an event, for people and for journals that add the time. A reader that does not read
// loses lines; it does not stop the daemon.
void log_line(const std::string& line) {
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&error, 1, 0) != 1 || (error.revents & POLLOUT) == 0) return;
  const std::string whole = line + "\n";
  (void)!::write(STDERR_FILENO, whole.data(), whole.size());
}

Result<unsigned> parse_mode(std::string_view text) {
  unsigned mode = 0;
  for (char digit : text) {
    if (digit < '0' || digit > '7' || mode > 0777) mode = 01000;
    mode = mode * 8 + static_cast<unsigned>(digit - '0');
  }
  if (!text.empty() && mode <= 0777 && (mode & 0600) == 0600) return mode;
  return bad_input("bad mode " + in_quotes(text) +
                   ", expected octal permissions from 0600 to 0777, such as 0660");
}

Result<double> parse_turn(std::string_view text) {
  const auto seconds = parse_double(text);
  if (seconds.ok() && *seconds >= 1e-4 && *seconds <= 3600) return *seconds;
  return bad_input("bad time " + in_quotes(text) + ", expected seconds from 0.0001 to 3600");
}

Result<double> parse_patience(std::string_view text) {
  const auto seconds = parse_double(text);
  if (seconds.ok() && *seconds >= 0.01 && *seconds <= 1e6) return *seconds;
  return bad_input("bad time " + in_quotes(text) + ", expected seconds from 0.01 to 1000000");
}

Result<double> parse_settle(std::string_view text) {
  const auto seconds = parse_double(text);
  if (seconds.ok() && *seconds >= 0 && *seconds <= 3600) return *seconds;
  return bad_input("bad time " + in_quotes(text) + ", expected seconds from 0 to 3600");
}

// Without devices: the processor, with the memory of the machine.
share::DeviceSpec this_machine() {
  return {"cpu", Bytes{::sysconf(_SC_PHYS_PAGES)} * Bytes{::sysconf(_SC_PAGE_SIZE)}};
}

Result<share::DaemonOptions> daemon_options(const ShareServeArguments& arguments) {
  share::DaemonOptions options{.socket = chosen_socket(arguments.socket),
                               .mode = arguments.mode,
                               .turn = share::from_seconds(arguments.turn),
                               .settle = share::from_seconds(arguments.settle),
                               .admission = share::from_seconds(arguments.admission),
                               .holder_patience = share::from_seconds(arguments.patience),
                               .kill_hung = arguments.kill_hung,
                               .page = arguments.page};
  if (!arguments.quiet) options.log = log_line;
  if (!arguments.policy.empty()) {
    REGEN_ASSIGN(options.rights, share::Rights::read(arguments.policy));
  }
  options.max_connections = static_cast<std::size_t>(arguments.max_connections);
  for (const std::string& text : arguments.devices) {
    REGEN_ASSIGN(const share::DeviceSpec device, share::parse_device(text));
    options.devices.push_back(device);
  }
  if (options.devices.empty()) options.devices.push_back(this_machine());
  return options;
}

Status run_serve(const ShareServeArguments& arguments) {
  REGEN_ASSIGN(share::DaemonOptions options, daemon_options(arguments));
  std::string devices;
  for (const share::DeviceSpec& device : options.devices) {
    devices += (devices.empty() ? "" : ", ") + device.name + " " + format_bytes(device.bytes);
  }
  std::string page;
  options.show_page = [&page](const std::string& url) { page = "page at " + url + "\n"; };
  return share::serve(options, [&] {
    // The daemon does not depend on a reader of its log.
    (void)print("serving " + devices + " at " + options.socket + "\n" + page).ok();
  });
}

}  // namespace

void add_share_serve(CLI::App& share, Action& action) {
  CLI::App& verb = add_verb(share, "serve", "Run the daemon that gives jobs their turns",
                            "  regen share serve --device gpu0:80GiB --device gpu1:80GiB");
  auto arguments = std::make_shared<ShareServeArguments>();
  add_socket(verb, arguments->socket);
  verb.add_option("--device", arguments->devices,
                  "A device and its memory, once for each (default: cpu with the machine's memory)")
      ->type_name("NAME:BYTES")
      ->take_all();
  add_parsed(verb, "--mode", arguments->mode, parse_mode, "OCTAL",
             "Permissions of the socket (default 0600: this user only)");
  add_parsed(verb, "--turn", arguments->turn, parse_turn, "SECONDS",
             "How long a job keeps the device before an equal may have it (default 0.1)");
  add_parsed(verb, "--settle", arguments->settle, parse_settle, "SECONDS",
             "After the start only jobs that were here before are admitted for so long "
             "(default 0.3)");
  add_parsed(verb, "--admission", arguments->admission, parse_patience, "SECONDS",
             "How long a newcomer waits for memory that others give back (default 300)");
  add_parsed(verb, "--patience", arguments->patience, parse_patience, "SECONDS",
             "Say so when a holder has not given way for so long (default 10)");
  verb.add_flag("--kill-hung", arguments->kill_hung,
                "Ask such a holder to end (SIGTERM), and kill it after the same time again");
  verb.add_option("--policy", arguments->policy,
                  "What users other than this one may have: administrators, and limits of "
                  "priority, weight, memory and jobs (default: priority 0, weight 1, 64 jobs)")
      ->type_name("FILE");
  add_parsed(
      verb, "--page", arguments->page, share::parse_page_address, "ADDRESS",
      "Serve a live page for a browser at 127.0.0.1:PORT (0: any free port) or unix:PATH, and "
      "print its URL with a token that each request takes (default: none)");
  verb.add_flag("--quiet", arguments->quiet, "No line on standard error for each event");
  add_parsed(verb, "--max-connections", arguments->max_connections, whole_number(1, 2000), "N",
             "Refuse more (default 1024)");
  set_action<ShareServeArguments>(verb, action, arguments, run_serve);
}

}  // namespace regen::cli
