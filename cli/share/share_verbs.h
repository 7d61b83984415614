// The verbs under `regen share`, one file each.
#pragma once

#include "cli/verbs/verbs.h"

namespace regen::cli {

void add_share_serve(CLI::App& share, Action& action);
void add_share_status(CLI::App& share, Action& action);
void add_share_top(CLI::App& share, Action& action);
void add_share_run(CLI::App& share, Action& action);
void add_share_set(CLI::App& share, Action& action);
void add_share_simulate(CLI::App& share, Action& action);
void add_share_trace(CLI::App& share, Action& action);

// --socket PATH; empty means the default place.
void add_socket(CLI::App& verb, std::string& path);
std::string chosen_socket(const std::string& path);
// --interval SECONDS, of what is shown again and again.
void add_interval(CLI::App& verb, double& seconds);

}  // namespace regen::cli
