// Options that steer planners, the same in every verb that plans.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>
#include <vector>

#include "regen/base/limit.h"
#include "regen/published/options.h"
#include "regen/search/planner.h"
#include "regen/search/portfolio/table.h"

namespace regen::cli {

// What the user set, before it is known for which planner.
struct PlannerArguments {
  search::PlannerOptions options;
  published::Options published;
  search::Ablation ablation;
  bool as_artifact = false;  // --accounting checkmate

  const CLI::App* verb = nullptr;  // where they were declared

  search::PlannerOptions resolved() const;
  std::string_view accounting_name() const;
  // Refuses an option that was given and that none of the planners takes.
  Status check(std::span<const std::string> planners) const;
};

// Declares every planner's options. `arguments` must live as long as the app.
void add_planner_options(CLI::App& verb, PlannerArguments& arguments);

// --time-limit and --work-limit.
void add_limits(CLI::App& verb, Limits& limits);

// What the user asked for, or so much counted work if that is nothing.
Limits limits_or(const Limits& asked, std::int64_t work);

// The names that an option declared here takes, for shells that complete; empty for others.
std::vector<std::string> planner_option_words(const std::string& option);

}  // namespace regen::cli
