// Which plans a lower bound is about, for people.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "regen/search/planner.h"

namespace regen::cli {

// "every plan", "graph's order" or "stage schedules".
std::string_view bound_plans(search::BoundKind kind);

// One line that says what the words mean and whether the bounds compare; empty where all are about
// every plan.
std::string bound_note(std::span<const search::BoundKind> kinds);

}  // namespace regen::cli
