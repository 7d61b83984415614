// The verbs of the command line, one file each. add_X() declares verb X and its options; when
// the user has chosen it, `action` does the work.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "regen/base/result.h"

namespace regen::cli {

// The error, if any, decides the exit status of the program and is its one line on standard error.
using Action = std::function<Status()>;

void add_zoo(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_simulate(CLI::App& app, Action& action);
void add_validate(CLI::App& app, Action& action);
void add_explain(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_draw(CLI::App& app, Action& action);
void add_pack(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_advise(CLI::App& app, Action& action);
void add_max_batch(CLI::App& app, Action& action);
void add_share(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_completion(CLI::App& app, Action& action);

// Declares a verb whose help ends with examples, one in each line.
CLI::App& add_verb(CLI::App& app, const std::string& name, const std::string& description,
                   const std::string& examples);

// Makes `run(arguments)` the action of the verb. The arguments live in a shared pointer because
// the options keep references to them.
template <typename Arguments>
void set_action(CLI::App& verb, Action& action, std::shared_ptr<Arguments> arguments,
                Status (*run)(const Arguments&)) {
  verb.callback([&action, arguments = std::move(arguments), run] {
    action = [arguments, run] { return run(*arguments); };
  });
}

}  // namespace regen::cli
