// The planners by name. To add one: write a file with its function, declare it in planner_list.h,
// and give it a row in registry.cpp (CONTRIBUTING.md shows the whole way).
#pragma once

#include <span>
#include <string_view>

#include "regen/search/planner.h"

namespace regen {

struct PlannerEntry {
  std::string_view name;
  std::string_view summary;  // one line for people
  PlanFunction plan;
  // What it calls infeasible is proven for its whole class. (In the artifact's batch-size test
  // fixed bytes count twice for the heuristics and once for the integer program.)
  bool integer_program = false;
};

// In the order in which they are shown.
std::span<const PlannerEntry> planner_registry();

// Letter case is ignored; an unknown name is refused with the list of names.
Result<const PlannerEntry*> find_planner(std::string_view name);

}  // namespace regen
