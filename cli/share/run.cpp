// regen share run: starts a program as a job.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cli/options/options.h"
#include "cli/share/share_verbs.h"
#include "regen/base/text.h"
#include "regen/share/client/channel.h"
#include "regen/share/protocol/environment.h"

namespace regen::cli {
namespace {

struct ShareRunArguments {
  std::string socket;
  share::JobSpec spec;
  share::Depth deepest = share::Depth::kSpill;
  std::vector<std::string> command;
};

Result<std::string> parse_name(std::string_view text) {
  const bool plain = on_one_line(text, text.size()) == text && is_utf8(text);
  if (!text.empty() && text.size() <= share::kMaxNameLength && plain) return std::string(text);
  return bad_input("bad name " + in_quotes(text) + ", expected 1 to 100 printable bytes");
}

// Checked before anything runs; a later refusal reaches the program when it registers.
Status check_room(const share::Enrolment& enrolment) {
  share::JobSpec spec = enrolment.spec;
  spec.identity = "check-" + std::to_string(::getpid());
  const auto fits = share::ask(enrolment.socket, {share::MessageType::kCheck, to_json(spec)},
                               share::MessageType::kFits);
  return fits.ok() ? Status() : Status(fits.error());
}

// Becomes the program: its exit status and the signals it gets need no passing on.
Status become(const std::vector<std::string>& command) {
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  return missing("cannot start " + in_quotes(command[0]) + ": " + std::strerror(errno) +
                 ", expected a program");
}

Status run_run(const ShareRunArguments& arguments) {
  share::Enrolment enrolment{chosen_socket(arguments.socket), arguments.spec, arguments.deepest};
  if (enrolment.spec.name.empty()) {
    const std::string program = std::filesystem::path(arguments.command[0]).filename().string();
    enrolment.spec.name = program.substr(0, share::kMaxNameLength);
  }
  REGEN_TRY(check_room(enrolment));
  for (const auto& [name, value] : to_environment(enrolment)) {
    if (value) ::setenv(name.c_str(), value->c_str(), 1);
    if (!value) ::unsetenv(name.c_str());
  }
  return become(arguments.command);
}

}  // namespace

void add_share_run(CLI::App& share, Action& action) {
  CLI::App& verb = add_verb(share, "run", "Start a program as a job that shares a device",
                            "  regen share run --priority 2 --memory 8GiB -- python infer.py");
  auto arguments = std::make_shared<ShareRunArguments>();
  share::JobSpec& spec = arguments->spec;
  add_socket(verb, arguments->socket);
  add_parsed(verb, "--name", spec.name, parse_name, "NAME", "For the status (default: COMMAND)");
  add_parsed(verb, "--device", spec.device, parse_name, "NAME",
             "Which device (default: the daemon's first)");
  add_parsed(verb, "--priority", spec.priority, share::parse_priority, "N",
             "Higher goes first, at once (default 0)");
  add_parsed(verb, "--weight", spec.weight, share::parse_weight, "W",
             "Share among jobs of the same priority (default 1)");
  add_parsed(verb, "--memory", spec.memory, parse_bytes, "BYTES", "What the job may use")
      ->required();
  add_parsed(verb, "--deadline", spec.deadline, share::parse_deadline, "SECONDS",
             "Asks for its grant within this time of each request");
  add_parsed(verb, "--deepest", arguments->deepest, share::parse_depth, "DEPTH",
             "How far it may be asked to get out of the way: pause, spill (default) or leave");
  verb.add_option("COMMAND", arguments->command, "The program and its arguments, after --")
      ->required()
      ->type_name("");
  set_action<ShareRunArguments>(verb, action, arguments, run_run);
}

}  // namespace regen::cli
