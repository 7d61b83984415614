#include "regen/report/document.h"

#include "regen/report/graph_json.h"
#include "regen/report/label.h"
#include "regen/report/modules.h"
#include "regen/report/plan_json.h"

namespace regen::report {

Result<Json> document(const Graph& graph, std::span<const Shown> shown, const std::string& title) {
  const ModuleTree tree = module_tree(graph);
  Json plans = Json::array();
  for (const Shown& one : shown) {
    REGEN_ASSIGN(Json plan, plan_json(graph, *one.plan, tree, one.facts));
    plans.push_back(std::move(plan));
  }
  return Json{{"format", "regen-report"},
              {"version", 1},
              {"title", label(title)},
              {"graph", graph_json(graph, tree)},
              {"plans", std::move(plans)}};
}

}  // namespace regen::report
