#include "regen/session/state/planned_step.h"

#include "regen/plan/explain.h"

namespace regen::session {

void PlannedStep::know(const PlanOrigin& origin) {
  report_ = std::make_shared<const PlanReport>(
      make_report(recorded_.graph(), plan_, simulation_, origin));
}

std::string PlannedStep::explanation() const {
  const Graph& graph = recorded_.graph();
  return to_text(graph, plan_, explain(graph, plan_));
}

}  // namespace regen::session
