// What the programs of the command line have in common: they choose a verb, run it, and turn what
// goes wrong into one line and an exit status.
#pragma once

#include <functional>

#include "cli/verbs/verbs.h"

namespace regen::cli {

using AddVerbs = std::function<void(CLI::App& app, Action& action)>;

// The exit status for it; an error is also said on standard error.
int report(const Status& status);

// The exit status of the program.
int run_program(int count, char** arguments, const AddVerbs& add_verbs);

}  // namespace regen::cli
