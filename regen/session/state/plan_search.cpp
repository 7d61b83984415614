#include "regen/session/state/plan_search.h"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "regen/base/progress/progress.h"
#include "regen/search/search_progress.h"
#include "regen/search/services/least_budget.h"

namespace regen::session {
namespace {

constexpr std::string_view kKeepAll = "keep_all";

Result<search::Problem> problem_for(const RecordedStep& recorded, const PlanRequest& request,
                                    const search::Planner& planner) {
  REGEN_ASSIGN(const Link link, link_for(recorded, planner));
  search::Problem problem = recorded.problem(request.budget, request.host_budget, link);
  problem.registry = request.registry;
  return problem;
}

// Where others may be asked, keeping everything says nothing about the least budget.
std::vector<const search::Planner*> planners_for_least(const PlanRequest& request) {
  const bool only_one = request.planners.size() == 1;
  std::vector<const search::Planner*> asked;
  for (const search::Planner* planner : request.planners) {
    if (only_one || planner->name != kKeepAll) asked.push_back(planner);
  }
  return asked;
}

// Plans of least budgets that this process knows. One without a plan was searched for in vain.
class LeastPlans {
 public:
  using Found = std::optional<search::Outcome>;

  static LeastPlans& of_process() {
    static LeastPlans plans;
    return plans;
  }
  std::optional<Found> find(const std::string& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(key);
    if (found == plans_.end()) return std::nullopt;
    return std::optional<Found>(std::in_place, found->second);
  }
  void add(const std::string& key, const Found& found) {
    const std::lock_guard lock(mutex_);
    plans_.emplace(key, found);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Found> plans_;
};

std::string least_key(const RecordedStep& recorded, const PlanRequest& request,
                      const search::Planner& planner, const Link& link) {
  std::string key =
      std::string(planner.name) + " " + std::to_string(recorded.graph().fingerprint());
  key += " " + std::to_string(request.least_limits.work);
  key += " " + (request.host_budget ? std::to_string(*request.host_budget) : "-");
  for (const double rate : {link.to_host, link.to_device, link.both}) {
    key += " " + format_exact(rate);
  }
  return key;
}

Result<LeastPlans::Found> search_least(const RecordedStep& recorded, const PlanRequest& request,
                                       const search::Planner& planner, const Link& link) {
  search::Problem problem = recorded.problem(std::nullopt, request.host_budget, link);
  problem.registry = request.registry;
  REGEN_ASSIGN(search::Outcome outcome,
               search::least_budget(planner, problem, recorded.addresses(), request.least_limits));
  return search::has_plan(outcome) ? LeastPlans::Found(std::move(outcome)) : std::nullopt;
}

Result<LeastPlans::Found> least_by(const RecordedStep& recorded, const PlanRequest& request,
                                   const search::Planner& planner) {
  REGEN_ASSIGN(const Link link, link_for(recorded, planner));
  const std::string key = least_key(recorded, request, planner, link);
  LeastPlans& known = LeastPlans::of_process();
  if (const auto found = known.find(key)) return *found;
  REGEN_ASSIGN(LeastPlans::Found found, search_least(recorded, request, planner, link));
  REGEN_TRY(expect_uninterrupted(request.least_limits));
  known.add(key, found);
  return found;
}

// It was found for a step of the same graph, though perhaps with other times.
Result<PlannedStep> take_known(const RecordedStep& recorded, const search::Outcome& outcome) {
  PlanOrigin origin = origin_of(outcome);
  origin.status = search::PlanStatus::kFeasible;  // for the least budget, not for this one
  origin.lower_bound = recorded.base_seconds();
  return recorded.accept(*outcome.plan, origin);
}

Refusal refuse(const RecordedStep& recorded, const PlanRequest& request,
               const search::Outcome& last, const std::optional<PlannedStep>& least) {
  Refusal refusal;
  refusal.why = explain_infeasible(recorded.graph(), request.budget.value_or(kMaxBytes));
  const StructuralBound& bound = refusal.why.bound;
  if (bound.op.valid()) refusal.op = recorded.graph().name(bound.op);
  for (const TensorId t : bound.live) refusal.tensors.emplace_back(recorded.graph().name(t));
  refusal.proven = refusal.why.proven || last.status == search::PlanStatus::kInfeasible;
  if (request.names_planner) refusal.planner = last.planner;
  if (least) refusal.least_budget = least->peak_bytes();
  return refusal;
}

}  // namespace

Result<Link> link_for(const RecordedStep& recorded, const search::Planner& planner) {
  if (planner.name == kKeepAll) return recorded.link().known().value_or(Link{});
  return recorded.link().get();
}

Status expect_uninterrupted(const Limits& limits) {
  const bool interrupted = limits.interrupt != nullptr && *limits.interrupt;
  return interrupted ? Status(limit_reached("interrupted while a plan was searched for"))
                     : Status();
}

Result<search::Outcome> search_plan(const RecordedStep& recorded, const PlanRequest& request) {
  Progress progress({.stage = "plan", .base = recorded.base_seconds()});
  const auto problem = [&](const search::Planner& planner) -> Result<search::Problem> {
    REGEN_ASSIGN(search::Problem made, problem_for(recorded, request, planner));
    made.observer = search::observer_of(progress);
    return made;
  };
  auto found =
      search::best_addressed(request.planners, problem, recorded.addresses(), request.limits);
  search::settle(progress, found);
  REGEN_TRY(expect_uninterrupted(request.limits));
  return found;
}

Result<std::optional<PlannedStep>> least_plan(const RecordedStep& recorded,
                                              const PlanRequest& request) {
  std::optional<PlannedStep> least;
  for (const search::Planner* planner : planners_for_least(request)) {
    REGEN_ASSIGN(const LeastPlans::Found found, least_by(recorded, request, *planner));
    if (!found) continue;
    REGEN_ASSIGN(PlannedStep planned, take_known(recorded, *found));
    if (!least || planned.peak_bytes() < least->peak_bytes()) least = std::move(planned);
  }
  return least;
}

Result<Planning> find_plan(const RecordedStep& recorded, const PlanRequest& request) {
  REGEN_ASSIGN(const search::Outcome found, search_plan(recorded, request));
  if (search::has_plan(found)) return Planning(recorded.take(found));
  REGEN_ASSIGN(std::optional<PlannedStep> least, least_plan(recorded, request));
  const Bytes budget = request.budget.value_or(kMaxBytes);
  if (least && least->peak_bytes() <= budget) return Planning(std::move(*least));
  return Planning(refuse(recorded, request, found, least));
}

}  // namespace regen::session
