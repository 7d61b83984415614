// The third state of a step: a plan that the validator accepts and the judge has priced, with
// addresses.
#pragma once

#include <memory>
#include <utility>

#include "regen/plan/plan.h"
#include "regen/session/report.h"
#include "regen/session/state/recorded_step.h"
#include "regen/simulate/simulate.h"

namespace regen::session {

class CompiledStep;
struct CompileOptions;

// Made by RecordedStep alone. Cheap to copy, except for the plan.
class PlannedStep {
 public:
  const RecordedStep& recorded() const { return recorded_; }
  const Plan& plan() const { return plan_; }
  const Simulation& simulation() const { return simulation_; }
  const PlanReport& report() const { return *report_; }
  // The same object until something new is known of the plan.
  const std::shared_ptr<const PlanReport>& shared_report() const { return report_; }
  Bytes peak_bytes() const { return simulation_.peak_bytes; }

  // What a later search has found out about this plan.
  void know(const PlanOrigin& origin);

  // Takes the arena and the host memory at once; fails if they cannot be had.
  Result<CompiledStep> compile(const CompileOptions& options) const;

  // Why it peaks where it does, for people.
  std::string explanation() const;

 private:
  friend class RecordedStep;
  PlannedStep(RecordedStep recorded, Plan plan, Simulation simulation,
              std::shared_ptr<const PlanReport> report)
      : recorded_(std::move(recorded)),
        plan_(std::move(plan)),
        simulation_(std::move(simulation)),
        report_(std::move(report)) {}

  RecordedStep recorded_;
  Plan plan_;
  Simulation simulation_;
  std::shared_ptr<const PlanReport> report_;
};

}  // namespace regen::session
