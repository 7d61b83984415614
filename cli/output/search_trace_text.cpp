#include "cli/output/search_trace_text.h"

#include "cli/output/output.h"
#include "regen/base/units.h"

namespace regen::cli {
namespace {

std::string source_of(const search::SearchEvent* event) {
  return event == nullptr ? "none" : event->source;
}

std::string cost_or_dash(const std::optional<double>& cost, CostUnit unit) {
  return cost ? format_cost(*cost, unit) : "-";
}

}  // namespace

std::string trace_text(const search::SearchTrace& trace, CostUnit unit) {
  std::string text = facts({{"first plan", source_of(trace.first_plan())},
                            {"best plan", source_of(trace.best_plan())},
                            {"bound", source_of(trace.best_bound())}});
  text += "\nasked                      after       work  plan        bound\n";
  for (const search::SearchEvent& event : trace.events) {
    std::string row = event.source;
    row.resize(std::max<std::size_t>(row.size(), 22), ' ');
    const std::string columns[] = {format_cost(event.seconds, CostUnit::kSecond),
                                   format_grouped(event.work), cost_or_dash(event.cost, unit),
                                   cost_or_dash(event.bound, unit)};
    for (const std::string& column : columns) {
      row += std::string(column.size() < 11 ? 11 - column.size() : 1, ' ') + column;
    }
    text += row + "\n";
  }
  return text;
}

Json trace_json(const search::SearchTrace& trace) {
  Json events = Json::array();
  for (const search::SearchEvent& event : trace.events) {
    events.push_back({{"source", event.source},
                      {"seconds", json_number(event.seconds)},
                      {"work", event.work},
                      {"cost", event.cost ? json_number(*event.cost) : Json(nullptr)},
                      {"bound", event.bound ? json_number(*event.bound) : Json(nullptr)}});
  }
  return {{"first_plan", source_of(trace.first_plan())},
          {"best_plan", source_of(trace.best_plan())},
          {"bound", source_of(trace.best_bound())},
          {"events", std::move(events)}};
}

}  // namespace regen::cli
