#include "regen/session/plan_page.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "regen/plan/validate.h"
#include "regen/report/document.h"

namespace regen::session {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> found;
  for (std::string word; stream >> word;) found.push_back(word);
  return found;
}

std::vector<report::CurvePoint> curve_of(const Session& session) {
  std::vector<report::CurvePoint> points;
  for (const CurvePoint& point : session.points()) {
    points.push_back({point.bytes, point.seconds, std::nullopt});
  }
  return points;
}

report::Facts facts_of(const Session& session, const RunFacts& facts, const RunReport& run) {
  report::Facts known;
  known.title = run.plan.origin.planner;
  known.budget = run.budget;
  known.caller_bytes = run.caller_bytes;
  known.lower_bound = run.plan.lower_bound;
  known.measured = {facts.measured_peak, facts.measured_seconds,
                    run.memory ? words(run.memory->unforeseen_nodes) : std::vector<std::string>()};
  known.islands = facts.islands;
  known.curve = curve_of(session);
  return known;
}

bool moves(const Plan& plan) {
  return std::ranges::any_of(plan.steps, [](const Step& step) {
    return step.kind() == StepKind::kOffload || step.kind() == StepKind::kFetch;
  });
}

}  // namespace

Result<Json> plan_page(const Session& session, const RunFacts& facts) {
  const Graph& graph = session.recorded().graph();
  const Plan& plan = session.planned().plan();
  report::Facts known = facts_of(session, facts, session.report());
  if (moves(plan) || (facts.other && moves(*facts.other))) {
    REGEN_ASSIGN(known.link, session.link());
  }
  std::vector<report::Shown> shown{{&plan, known}};
  if (facts.other) {
    const auto validation = validate(graph, *facts.other);
    if (!validation.ok()) {
      return Error{validation.error().code, facts.other_title + ": " + validation.error().message};
    }
    shown.push_back({&*facts.other,
                     {.title = facts.other_title,
                      .link = known.link,
                      .budget = known.budget,
                      .caller_bytes = known.caller_bytes}});
  }
  return report::document(graph, shown, graph.name());
}

}  // namespace regen::session
