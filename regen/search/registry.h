// Planners by name. An application makes a registry and fills it by explicit calls: nothing
// registers itself. docs/how-to/add-a-planner.md shows how to add a planner.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regen/search/planner.h"

namespace regen::search {

class Registry {
 public:
  // A planner of the same name is replaced.
  void add(Planner planner);

  // In the order in which they were added.
  std::span<const Planner> planners() const { return planners_; }
  // Letter case is ignored; an unknown name is refused with the list of names.
  Result<const Planner*> find(std::string_view name) const;
  Result<std::vector<const Planner*>> find_all(std::span<const std::string> names) const;

 private:
  std::vector<Planner> planners_;
};

// Adds every planner of search/.
void register_search_planners(Registry& registry);

// The registry of these planners alone; made by the first call.
const Registry& search_planners();

// The planner of that exact name in the problem's registry, or of search/ where it has none; null:
// there is none.
const Planner* planner_for(const Problem& problem, std::string_view name);

// A planner of search/ by its exact name, for the services and the portfolio.
const Planner& own_planner(std::string_view name);

}  // namespace regen::search
