#include "cli/application.h"

#include <algorithm>
#include <exception>
#include <new>
#include <vector>

#include "cli/interrupt.h"
#include "cli/output/output.h"
#include "regen/base/progress/progress.h"

namespace regen::cli {

CLI::App& add_verb(CLI::App& app, const std::string& name, const std::string& description,
                   const std::string& examples) {
  CLI::App* verb = app.add_subcommand(name, description);
  verb->footer("\nExample:\n" + examples);
  return *verb;
}

namespace {

constexpr int kBadUsage = 2;

int fail(const std::string& message, int status) {
  warn(message);
  return status;
}

// Where to look further: the chosen verb's help, or the program's.
std::string help_hint(const CLI::App& app) {
  std::string words = "regen ";
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    words += at->get_name() + " ";
  }
  return words + "--help";
}

std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string message = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const auto extras = app.remaining(/*recurse=*/true);
    message = "unexpected argument '" + (extras.empty() ? "" : extras.front().substr(0, 60)) + "'";
  }
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr) return message;
  while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.pop_back();
  return message + "; " + help_hint(app) + " says what is expected";
}

bool has_verb(const CLI::App& app, const std::string& name) {
  const auto verbs = app.get_subcommands({});
  return std::any_of(verbs.begin(), verbs.end(),
                     [&](const CLI::App* verb) { return verb->check_name(name); });
}

// The library would only say that a verb is required.
std::string unknown_verb(const CLI::App& app, const std::string& word) {
  std::string names;
  for (const CLI::App* verb : app.get_subcommands({})) {
    names += (names.empty() ? "" : ", ") + verb->get_name();
  }
  return "unknown verb '" + word.substr(0, 60) + "', expected one of " + names;
}

// Of the verbs of `share`, those that compute. Others go on by themselves, have the whole terminal, or
// become another program.
bool computes(const std::string& verb) {
  return verb == "simulate" || verb == "trace";
}

// The verb's name is what a line of progress says where nothing more is known.
Status run_action(const CLI::App& app, const Action& action) {
  const CLI::App* verb = &app;
  while (!verb->get_subcommands().empty()) verb = verb->get_subcommands().front();
  const bool shared = verb->get_parent() != &app;
  if (shared && !computes(verb->get_name())) return action();
  wipe_line_at_signals();
  const Progress progress({.stage = verb->get_name()});
  return action();
}

int run(int count, char** arguments, const AddVerbs& add_verbs) {
  CLI::App app("Trains networks that do not fit: plans what to keep, recompute or move.", "regen");
  app.set_version_flag("--version", "regen " REGEN_VERSION);
  app.get_formatter()->label("SUBCOMMAND", "VERB ...");
  app.get_formatter()->label("Subcommands", "Verbs");
  app.require_subcommand(1);
  app.footer("\nregen VERB --help shows the options of a verb with an example.");
  Action action;
  add_verbs(app, action);
  if (count < 2) return fail("no verb given, expected regen VERB ...; see regen --help", kBadUsage);
  const std::string first = arguments[1];
  if (!first.starts_with('-') && !has_verb(app, first)) {
    return fail(unknown_verb(app, first), kBadUsage);
  }
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help or version
    return fail(usage_message(app, error), kBadUsage);
  }
  return report(run_action(app, action));
}

}  // namespace

int report(const Status& status) {
  return status.ok() ? 0 : fail(status.error().message, exit_status(status.error().code));
}

int run_program(int count, char** arguments, const AddVerbs& add_verbs) {
  try {
    return run(count, arguments, add_verbs);
  } catch (const std::bad_alloc&) {
    return fail("out of memory, expected a smaller input or a larger machine", 2);
  } catch (const std::exception& error) {
    return fail(std::string("unexpected failure: ") + error.what() +
                    "; please report this with the command line",
                2);
  }
}

}  // namespace regen::cli
