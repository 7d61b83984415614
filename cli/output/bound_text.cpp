#include "cli/output/bound_text.h"

#include <algorithm>

namespace regen::cli {
namespace {

constexpr search::BoundKind kKinds[]{search::BoundKind::kEveryPlan, search::BoundKind::kOrder,
                                     search::BoundKind::kStages};

std::string_view meaning(search::BoundKind kind) {
  switch (kind) {
    case search::BoundKind::kEveryPlan:
      return "";
    case search::BoundKind::kOrder:
      return "first runs follow the order of the graph";
    case search::BoundKind::kStages:
      return "in the graph's order, nothing moves, no op runs twice between two first runs";
  }
  return "";
}

}  // namespace

std::string_view bound_plans(search::BoundKind kind) {
  switch (kind) {
    case search::BoundKind::kEveryPlan:
      return "every plan";
    case search::BoundKind::kOrder:
      return "graph's order";
    case search::BoundKind::kStages:
      return "stage schedules";
  }
  return "?";
}

std::string bound_note(std::span<const search::BoundKind> kinds) {
  std::string note;
  std::size_t different = 0;
  for (const search::BoundKind kind : kKinds) {
    if (std::ranges::find(kinds, kind) == kinds.end()) continue;
    ++different;
    if (meaning(kind).empty()) continue;
    note += (note.empty() ? "" : "; ") + std::string(bound_plans(kind)) + ": " +
            std::string(meaning(kind));
  }
  if (note.empty()) return "";
  if (different > 1) note += "; bounds over different plans do not compare";
  return "bound over " + note + "\n";
}

}  // namespace regen::cli
