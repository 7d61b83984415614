// The verbs of regen-runtime, one file each, in the manner of cli/verbs/verbs.h.
#pragma once

#include "cli/verbs/verbs.h"

namespace regen::cli {

void add_profile(CLI::App& app, Action& action);
void add_run(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);

}  // namespace regen::cli
