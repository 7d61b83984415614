#include "regen/search/planner.h"

#include <array>

namespace regen::search {

std::string_view to_string(PlanStatus status) {
  constexpr std::array<std::string_view, 4> kNames{"optimal", "feasible", "infeasible", "unknown"};
  return kNames[static_cast<std::size_t>(status)];
}

std::string_view to_string(BoundKind kind) {
  switch (kind) {
    case BoundKind::kEveryPlan:
      return "every_plan";
    case BoundKind::kOrder:
      return "order";
    case BoundKind::kStages:
      return "stages";
  }
  return "?";
}

}  // namespace regen::search
