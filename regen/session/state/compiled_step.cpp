#include "regen/session/state/compiled_step.h"

#include <utility>

#include "regen/base/progress/progress.h"

namespace regen::session {

Result<CompiledStep> PlannedStep::compile(const CompileOptions& options) const {
  const execute::ExecutorOptions made{.reserve = recorded_.reserve().allocations,
                                      .beside = options.beside,
                                      .debug = options.debug,
                                      .releasable = options.releasable,
                                      .capture = recorded_.cuda_graphs(),
                                      .arena = options.arena};
  const Progress progress({.stage = "compile"});
  REGEN_ASSIGN(auto executor, execute::Executor::compile(recorded_.recording(), recorded_.step(),
                                                         plan_, recorded_.device(), made));
  return CompiledStep(*this, std::move(executor), options.memory);
}

CompiledStep::CompiledStep(PlannedStep planned, std::unique_ptr<execute::Executor> executor,
                           std::shared_ptr<JobMemory> memory)
    : planned_(std::move(planned)), executor_(std::move(executor)), memory_(std::move(memory)) {
  if (memory_) memory_->set_arena(executor_.get(), planned_.recorded().fixed_bytes());
}

CompiledStep::~CompiledStep() {
  let_go();
}

CompiledStep& CompiledStep::operator=(CompiledStep&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  planned_ = std::move(other.planned_);
  executor_ = std::move(other.executor_);
  memory_ = std::move(other.memory_);
  return *this;
}

void CompiledStep::let_go() {
  if (memory_ && executor_) memory_->clear_arena(executor_.get());
}

Status CompiledStep::run() {
  for (std::size_t part = 0; part < executor_->num_parts(); ++part) REGEN_TRY(run(part));
  return {};
}

MemoryReport CompiledStep::memory() const {
  MemoryReport report;
  report.arena_bytes = executor_->arena_bytes();
  report.host_bytes = executor_->host_bytes();
  report.saved_state_bytes = planned_.recorded().saved_state_bytes();
  report.captured = executor_->repeated().captured();
  report.captured_bytes = executor_->repeated().bytes();
  std::string& names = report.unforeseen_nodes;
  for (const execute::Deviation& deviation : executor_->deviations()) {
    report.unforeseen += deviation.unforeseen + deviation.unasked;
    if (names.find(deviation.label) != std::string::npos) continue;
    names += (names.empty() ? "" : " ") + deviation.label;
  }
  return report;
}

std::vector<TracedOp> CompiledStep::take_trace() {
  std::vector<TracedOp> rows;
  const Plan& plan = planned_.plan();
  for (const execute::StepTime& time : executor_->take_trace()) {
    const Step& step = plan.steps[time.step];
    if (step.kind() != StepKind::kCompute) continue;
    const std::string_view name = planned_.recorded().graph().name(step.op());
    rows.push_back({std::string(name), time.begin, time.end});
  }
  return rows;
}

}  // namespace regen::session
