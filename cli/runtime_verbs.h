// Verbs that another program does: regen-runtime, which is linked with torch. Loading torch takes
// longer than most verbs, so that only these pay for it.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>

#include "regen/base/result.h"

namespace regen::cli {

bool is_runtime_verb(std::string_view name);

// For the list of verbs; their options are the other program's.
void declare_runtime_verbs(CLI::App& app);

// Becomes regen-runtime beside this program, with the same arguments (ended by a null pointer).
// Returns only when that cannot be done.
Status become_runtime(char** arguments);

}  // namespace regen::cli
