// Options that steer planners, the same in every verb that plans.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "regen/base/limit.h"
#include "regen/search/planner.h"

namespace regen::cli {

// Declares every field of PlannerOptions as an option. `options` must live as long as the app.
void add_planner_options(CLI::App& verb, PlannerOptions& options);

// --time-limit and --work-limit.
void add_limits(CLI::App& verb, Limits& limits);

// What the user asked for, or so much counted work if that is nothing.
Limits limits_or(const Limits& asked, std::int64_t work);

// The names that an option declared here takes, for shells that complete; empty for others.
std::vector<std::string> planner_option_words(const std::string& option);

}  // namespace regen::cli
