// The judge: the only way a proposal becomes an outcome. It simulates and validates the plan, and
// compares the two peaks.
#pragma once

#include "regen/search/planner.h"

namespace regen::search {

// A proposal that went through simulator and validator.
struct Outcome {
  std::string planner;
  PlanStatus status = PlanStatus::kUnknown;
  std::optional<Plan> plan;
  Simulation simulation;  // of `plan`, if there is one
  double base_cost = 0;
  double lower_bound = 0;  // at least the trivial one: every op once, each in its cheapest way
  BoundKind bound_kind = BoundKind::kEveryPlan;
  double gap = 0;  // (cost - lower_bound) / cost, 0 without a plan
  double seconds = 0;
  std::int64_t work = 0;
  std::string note;
  Figures figures;
};

// Runs a planner on a problem and judges what it proposes. Bad input (a graph the planner cannot
// take) is an error; infeasible and unknown are outcomes.
Result<Outcome> solve(const Planner& planner, const Problem& problem, const Limits& limits = {});

// True when the simulated plan keeps the problem's budget, host budget and cost cap.
bool within_limits(const Problem& problem, const Simulation& simulation);

}  // namespace regen::search
