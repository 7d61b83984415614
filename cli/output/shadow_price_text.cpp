#include "cli/output/shadow_price_text.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "cli/output/output.h"
#include "regen/base/text.h"
#include "regen/plan/whereabouts.h"
#include "regen/search/planner.h"

namespace regen::cli {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;
constexpr std::size_t kNameWidth = 48;

using Where = std::optional<IdVector<TensorId, Whereabouts>>;

Where where_at(const PricedPlan& priced, OpId op) {
  if (priced.plan == nullptr) return std::nullopt;
  return whereabouts(priced.graph, *priced.plan, op);
}

std::string show_op(const Graph& graph, OpId op) {
  return on_one_line(std::to_string(op.index()) + " '" + graph.name(op) + "'", kNameWidth);
}

std::string show_tensor(const Graph& graph, TensorId t) {
  return on_one_line(std::to_string(t.index()) + " '" + graph.name(t) + "'", kNameWidth);
}

std::string show_bytes(double bytes) {
  return format_bytes(static_cast<Bytes>(std::llround(bytes)));
}

double over_bytes(const PricedPlan& priced, const search::MemoryRow& row) {
  return std::max(0.0, row.live_bytes - static_cast<double>(priced.price.budget));
}

double gap(const PricedPlan& priced) {
  return std::max(0.0, 1 - priced.price.bound / priced.cost);
}

std::string verdict_on_plan(const PricedPlan& priced) {
  const CostUnit unit = priced.graph.cost_unit();
  const std::string cost = full_cost(priced.cost, unit);
  if (!keeps_order(*priced.plan)) {
    return cost + ", in an order of its own: what follows is about plans in the graph's order";
  }
  return cost + ", gap " + decimals(100 * gap(priced), 1) + " % to the bound below";
}

std::string summary(const PricedPlan& priced) {
  const search::ShadowPrice& price = priced.price;
  const CostUnit unit = priced.graph.cost_unit();
  std::vector<std::pair<std::string, std::string>> lines;
  if (priced.plan != nullptr) lines.emplace_back("plan", verdict_on_plan(priced));
  lines.emplace_back("budget", full_bytes(price.budget));
  lines.emplace_back("at least", full_cost(price.bound, unit) +
                                     " for every plan in the graph's order, of it " +
                                     full_cost(price.least_cost, unit) + " to run every op once");
  if (price.binds()) {
    const std::string more = format_bytes(price.more);
    lines.emplace_back("price",
                       format_cost(price.per_byte * kGib, unit) + " for each GiB at this budget");
    lines.emplace_back("with more", more + " lower the bound by " +
                                        format_cost(price.saved_with_more(), unit) + " to " +
                                        full_cost(price.bound_with_more, unit) +
                                        " (solved again there; by the price at most " +
                                        format_cost(price.saved_at_most(), unit) + ")");
  } else {
    lines.emplace_back("price", "none: by the bound no plan pays for memory at this budget");
  }
  return facts(lines);
}

std::string rows_table(const PricedPlan& priced, std::size_t max_rows) {
  const auto& rows = priced.price.rows;
  const CostUnit unit = priced.graph.cost_unit();
  Table table({{"price of a GiB", Table::Align::kRight},
               {"op"},
               {"live if all is kept", Table::Align::kRight},
               {"over the budget", Table::Align::kRight},
               {"made again", Table::Align::kRight},
               {"on the host", Table::Align::kRight}});
  const std::size_t shown = std::min(rows.size(), max_rows);
  for (std::size_t i = 0; i < shown; ++i) {
    const search::MemoryRow& row = rows[i];
    table.add({format_cost(row.price * kGib, unit), show_op(priced.graph, row.op),
               show_bytes(row.live_bytes), show_bytes(over_bytes(priced, row)),
               show_bytes(row.dropped_bytes), show_bytes(row.away_bytes)});
  }
  std::string text = "\nWhere memory binds, and what must give way there\n" + table.text();
  if (shown < rows.size()) text += "and " + std::to_string(rows.size() - shown) + " more\n";
  return text;
}

std::string tenants_table(const PricedPlan& priced, OpId op, std::size_t max_rows) {
  const Graph& graph = priced.graph;
  const std::vector<search::Tenant> tenants = search::tenants_at(graph, priced.price, op);
  const Where where = where_at(priced, op);
  std::vector<Table::Column> columns{{"bytes", Table::Align::kRight},
                                     {"tensor"},
                                     {"given up", Table::Align::kRight},
                                     {"making it again", Table::Align::kRight},
                                     {"holding it", Table::Align::kRight}};
  if (where) columns.push_back({"in the plan"});
  Table table(std::move(columns));
  const std::size_t shown = std::min(tenants.size(), max_rows);
  for (std::size_t i = 0; i < shown; ++i) {
    const search::Tenant& tenant = tenants[i];
    std::vector<std::string> row{
        format_grouped(graph.bytes(tenant.tensor)), show_tensor(graph, tenant.tensor),
        decimals(100 * tenant.dropped, 0) + " %", format_cost(tenant.again_cost, graph.cost_unit()),
        format_cost(tenant.rent, graph.cost_unit())};
    if (where) row.emplace_back(to_string((*where)[tenant.tensor]));
    table.add(std::move(row));
  }
  std::string text = "\nLive at op " + show_op(graph, op) + " and not read by it\n" + table.text();
  if (shown < tenants.size()) text += "and " + std::to_string(tenants.size() - shown) + " more\n";
  return text;
}

Json tenants_json(const PricedPlan& priced, OpId op, std::size_t max_tensors) {
  std::vector<search::Tenant> tenants = search::tenants_at(priced.graph, priced.price, op);
  tenants.resize(std::min(tenants.size(), max_tensors));
  const Where where = where_at(priced, op);
  Json list = Json::array();
  for (const search::Tenant& tenant : tenants) {
    list.push_back({{"tensor", tenant.tensor.index()},
                    {"name", priced.graph.name(tenant.tensor)},
                    {"bytes", priced.graph.bytes(tenant.tensor)},
                    {"given_up", json_number(tenant.dropped)},
                    {"again_cost", json_number(tenant.again_cost)},
                    {"hold_cost", json_number(tenant.rent)}});
    if (where) list.back()["in_plan"] = to_string((*where)[tenant.tensor]);
  }
  return list;
}

Json row_json(const PricedPlan& priced, const search::MemoryRow& row, std::size_t max_tensors) {
  return {{"op", row.op.index()},
          {"op_name", priced.graph.name(row.op)},
          {"price_per_gib", json_number(row.price * kGib)},
          {"live_bytes", json_number(row.live_bytes)},
          {"over_bytes", json_number(over_bytes(priced, row))},
          {"made_again_bytes", json_number(row.dropped_bytes)},
          {"on_host_bytes", json_number(row.away_bytes)},
          {"tensors", tenants_json(priced, row.op, max_tensors)}};
}

}  // namespace

std::string price_text(const PricedPlan& priced, std::size_t max_rows) {
  if (std::isinf(priced.price.bound)) {
    return "no plan in the graph's order keeps " + format_grouped(priced.price.budget) +
           " bytes, so memory has no price in it; another order may\n";
  }
  std::string text = summary(priced);
  if (priced.price.rows.empty()) return text;
  return text + rows_table(priced, max_rows) +
         tenants_table(priced, priced.price.rows.front().op, max_rows);
}

Json price_json(const PricedPlan& priced, std::size_t max_rows) {
  const search::ShadowPrice& price = priced.price;
  Json json{{"budget_bytes", price.budget},
            {"cost_unit", to_string(priced.graph.cost_unit())},
            {"lower_bound", json_number(price.bound)},
            {"bound_kind", to_string(search::BoundKind::kOrder)},
            {"least_cost", json_number(price.least_cost)},
            {"price_per_gib", json_number(price.per_byte * kGib)},
            {"more_bytes", price.more},
            {"lower_bound_with_more", json_number(price.bound_with_more)},
            {"saved_with_more", json_number(price.saved_with_more())},
            {"saved_at_most", json_number(price.saved_at_most())},
            {"num_rows", price.rows.size()},
            {"rows", Json::array()}};
  for (std::size_t i = 0; i < std::min(price.rows.size(), max_rows); ++i) {
    json["rows"].push_back(row_json(priced, price.rows[i], max_rows));
  }
  if (priced.plan == nullptr) return json;
  const bool comparable = keeps_order(*priced.plan);
  json["plan"] = {{"cost", json_number(priced.cost)},
                  {"keeps_order", comparable},
                  {"gap", json_or_null(comparable, json_number(gap(priced)))}};
  return json;
}

}  // namespace regen::cli
