#include "cli/output/ratio_table.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/output/output.h"

namespace regen::cli {
namespace {

using ByBudget = std::map<Bytes, const SweepPoint*>;

// What the reference says about each budget at which a comparison with it is fair.
ByBudget reference_points(const std::vector<SweepPoint>& points, const std::string& reference) {
  const bool plans = std::any_of(points.begin(), points.end(), [&](const SweepPoint& point) {
    return point.planner == reference && point.found();
  });
  ByBudget result;
  for (const SweepPoint& point : points) {
    const bool counts = plans ? point.found() : point.begun;
    if (point.planner == reference && counts) result[point.budget] = &point;
  }
  return result;
}

void add_ratio(RatioRow& row, double& logarithms, double ratio, bool optimal) {
  logarithms += std::log(ratio);
  row.maximum = std::max(row.maximum, ratio);
  ++(optimal ? row.optimal : row.bounded);
}

std::string basis(const RatioRow& row) {
  if (row.budgets() == 0) return "no budget in common";
  if (row.bounded == 0) return "optimum";
  const std::string bounds = "lower bound";
  return row.optimal == 0 ? bounds
                          : "optimum at " + std::to_string(row.optimal) + ", " + bounds + " at " +
                                std::to_string(row.bounded);
}

}  // namespace

std::vector<RatioRow> ratio_rows(const std::vector<SweepPoint>& points,
                                 const std::string& reference) {
  const ByBudget best = reference_points(points, reference);
  std::vector<RatioRow> rows;
  std::vector<double> logarithms;
  for (const SweepPoint& point : points) {
    if (rows.empty() || rows.back().planner != point.planner) {
      rows.push_back({.planner = point.planner});
      logarithms.push_back(0);
    }
    const auto found = best.find(point.budget);
    if (!point.found() || found == best.end()) continue;
    const bool optimal = found->second->status == search::PlanStatus::kOptimal;
    const double least = optimal ? found->second->simulation.cost : found->second->lower_bound;
    if (least <= 0 || point.simulation.cost <= 0) continue;
    add_ratio(rows.back(), logarithms.back(), point.simulation.cost / least, optimal);
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].budgets() > 0) rows[i].geometric_mean = std::exp(logarithms[i] / rows[i].budgets());
  }
  return rows;
}

std::string ratio_text(const std::vector<RatioRow>& rows, const std::string& reference) {
  Table table({{"planner"},
               {"budgets", Table::Align::kRight},
               {"geometric mean", Table::Align::kRight},
               {"maximum", Table::Align::kRight},
               {"cost over " + reference + "'s"}});
  for (const RatioRow& row : rows) {
    const bool any = row.budgets() > 0;
    table.add({row.planner, std::to_string(row.budgets()),
               any ? decimals(row.geometric_mean, 4) : "", any ? decimals(row.maximum, 4) : "",
               basis(row)});
  }
  return table.text();
}

Json ratio_json(const std::vector<RatioRow>& rows, const std::string& reference) {
  Json array = Json::array();
  for (const RatioRow& row : rows) {
    const bool any = row.budgets() > 0;
    array.push_back({{"planner", row.planner},
                     {"budgets", row.budgets()},
                     {"geometric_mean", any ? json_number(row.geometric_mean) : Json(nullptr)},
                     {"maximum", any ? json_number(row.maximum) : Json(nullptr)},
                     {"against_optimum", row.optimal},
                     {"against_bound", row.bounded}});
  }
  return {{"reference", reference}, {"planners", std::move(array)}};
}

}  // namespace regen::cli
