#include "cli/output/sweep_points.h"

#include "cli/output/output.h"

namespace regen::cli {
namespace {

// A bound on the cost says something unless there is no plan to bound.
bool has_bound(const SweepPoint& point) {
  return point.begun && point.status != search::PlanStatus::kInfeasible;
}

Json point_json(const SweepPoint& point) {
  Json row{{"planner", point.planner},
           {"budget_bytes", point.budget},
           {"status", to_string(point.status)},
           {"seconds", json_number(point.seconds)},
           {"note", point.note}};
  if (has_bound(point)) row["lower_bound"] = json_number(point.lower_bound);
  // Also of an infeasible point: none of these plans fits.
  if (point.begun) row["bound_kind"] = to_string(point.bound_kind);
  if (!point.found()) return row;
  row["cost"] = json_number(point.simulation.cost);
  row["overhead"] = json_number(point.simulation.overhead);
  row["peak_bytes"] = point.simulation.peak_bytes;
  row["activation_peak_bytes"] = point.simulation.activation_peak_bytes;
  row["recomputed"] = point.simulation.recomputed;
  row["gap"] = json_number(point.gap);
  return row;
}

constexpr std::string_view kColumns[]{"planner",
                                      "budget_bytes",
                                      "status",
                                      "cost",
                                      "overhead",
                                      "peak_bytes",
                                      "activation_peak_bytes",
                                      "seconds",
                                      "recomputed",
                                      "lower_bound",
                                      "gap",
                                      "bound_kind"};

// What a point does not have stays empty.
std::string csv_cell(const Json& row, std::string_view column) {
  const auto found = row.find(column);
  if (found == row.end() || found->is_null()) return "";
  return found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

std::string sweep_csv(const std::vector<SweepPoint>& points) {
  std::string text;
  for (std::string_view column : kColumns) text += (text.empty() ? "" : ",") + std::string(column);
  text += "\n";
  for (const SweepPoint& point : points) {
    const Json row = point_json(point);
    std::string line;
    for (std::string_view column : kColumns) {
      line += (column == kColumns[0] ? "" : ",") + csv_cell(row, column);
    }
    text += line + "\n";
  }
  return text;
}

Json sweep_json(const std::vector<SweepPoint>& points) {
  Json array = Json::array();
  for (const SweepPoint& point : points) array.push_back(point_json(point));
  return array;
}

}  // namespace regen::cli
