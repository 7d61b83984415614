// The planners of the command line by name: those of search/ and of published/.
#pragma once

#include <string_view>

#include "regen/published/planner_list.h"

namespace regen::cli {

inline Result<const search::Planner*> find_planner(std::string_view name) {
  return published::every_planner().find(name);
}

}  // namespace regen::cli
