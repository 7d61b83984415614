#include "python/runtime_step.h"

#include <set>
#include <utility>

#include "regen/graph/analysis.h"
#include "regen/graph/format_regen.h"
#include "regen/plan/addresses.h"
#include "regen/plan/explain.h"
#include "regen/plan/plan_json.h"
#include "regen/plan/validate.h"
#include "regen/published/planner_list.h"
#include "regen/search/services/least_budget.h"
#include "regen/simulate/simulate.h"

namespace py = pybind11;

namespace regen {
namespace {

// For each of many plans that are looked for in a second.
constexpr std::int64_t kQuickPackWork = 50'000;

Limits limits_of(const PlanRequest& request) {
  Limits limits;
  if (request.seconds > 0) limits.seconds = request.seconds;
  if (request.work > 0) limits.work = request.work;
  return limits;
}

std::vector<const search::Planner*> planners_of(const PlanRequest& request) {
  return value_or_raise(published::every_planner().find_all(request.planners));
}

// How many ops run otherwise than by default: in place of something they read, or by another
// algorithm.
std::size_t ops_in_other_variants(const Graph& graph, const Plan& plan, bool in_place) {
  std::set<OpId> ops;
  for (const auto& step : plan.steps) {
    if (step.kind() != StepKind::kCompute || step.choice() == 0) continue;
    if (graph.overwrites(step.variant(graph)).valid() == in_place) ops.insert(step.op());
  }
  return ops.size();
}

}  // namespace

RuntimeStep::RuntimeStep(const std::string& json, const std::string& device)
    : program_(value_or_raise(execute::read_program(json, "program"))),
      device_(value_or_raise(execute::open_device(device))) {}

void RuntimeStep::record(const std::map<std::size_t, at::Tensor>& samples, int repeats,
                         const std::string& cache_path, const std::string& algorithms,
                         bool capture) {
  // An operator may be written in Python and tried on another thread.
  const py::gil_scoped_release unlocked;
  execute::RecordOptions options;
  options.repeats = repeats;
  options.algorithms = value_or_raise(execute::parse_algorithms(algorithms));
  options.capture = capture;
  options.sample = [&](execute::StorageId storage) {
    const auto found = samples.find(storage.index());
    return found == samples.end() ? at::Tensor() : found->second;
  };
  recording_ = std::make_shared<execute::Recording>(
      value_or_raise(execute::record_with_file(program_, *device_, options, cache_path)));
}

void RuntimeStep::make_graph(Bytes runtime_bytes) {
  execute::StepGraphOptions options;
  options.alignment = device_->alignment();
  options.runtime_bytes =
      runtime_bytes + execute::generator_bytes(recording_->program, device_->torch_device());
  step_ = std::make_shared<execute::StepGraph>(
      value_or_raise(execute::make_step_graph(*recording_, options)));
}

py::dict RuntimeStep::plan(const PlanRequest& request) {
  const search::Problem problem = make_problem(request);
  search::Outcome outcome;
  {
    const py::gil_scoped_release unlocked;
    outcome = value_or_raise(
        search::best_addressed(planners_of(request), problem, addresses(), limits_of(request)));
  }
  note(outcome);
  return report(outcome);
}

py::dict RuntimeStep::least(const PlanRequest& request) {
  if (request.planners.size() != 1) throw RegenError("the least budget is asked of one planner");
  const search::Problem problem = make_problem(request);
  search::Outcome outcome;
  {
    const py::gil_scoped_release unlocked;
    outcome = value_or_raise(
        search::least_budget(*planners_of(request)[0], problem, addresses(), limits_of(request)));
  }
  note(outcome);
  return report(outcome);
}

void RuntimeStep::make_curve(const PlanRequest& request) {
  const search::Problem problem = make_problem(request);
  search::AddressOptions quick = addresses();
  quick.pack_work = kQuickPackWork;
  const py::gil_scoped_release unlocked;
  curve_ = value_or_raise(
      search::PlanCurve::make(planners_of(request), problem, quick, limits_of(request)));
}

void RuntimeStep::note(const search::Outcome& outcome) {
  if (curve_ && search::has_plan(outcome)) curve_->add(outcome);
}

std::vector<std::pair<Bytes, double>> RuntimeStep::curve() const {
  std::vector<std::pair<Bytes, double>> points;
  if (!curve_) return points;
  for (const search::Outcome& plan : curve_->plans()) {
    points.emplace_back(plan.simulation.peak_bytes, plan.simulation.cost);
  }
  return points;
}

py::object RuntimeStep::take_within(Bytes bytes) {
  const search::Outcome* found = curve_ ? curve_->within(bytes) : nullptr;
  if (found == nullptr) return py::none();
  return report(*found);
}

py::dict RuntimeStep::judge(const PlanRequest& request) {
  if (!plan_) throw RegenError("there is no plan to judge");
  const search::Problem problem = make_problem(request);
  search::Outcome outcome;
  outcome.planner = plan_->planner;
  outcome.status = search::PlanStatus::kFeasible;
  outcome.plan = plan_;
  SimulateOptions options;
  options.link = problem.link;
  outcome.simulation = value_or_raise(simulate(step_->graph, *plan_, options));
  outcome.base_cost = outcome.lower_bound = step_->graph.base_cost();
  return report(outcome);
}

void RuntimeStep::set_plan(const std::string& json) {
  plan_ = value_or_raise(parse_plan(json, "plan"));
  if (plan_->fingerprint != 0 && plan_->fingerprint != step_->graph.fingerprint()) {
    throw RegenError("the plan was made for another graph");
  }
  if (plan_->addresses) return;
  PackOptions options;
  options.alignment = device_->alignment();
  plan_ = value_or_raise(with_addresses(step_->graph, *plan_, options)).plan;
}

std::string RuntimeStep::explain_budget(Bytes budget) const {
  return explain_infeasible(step_->graph, budget).message;
}

std::unique_ptr<search::BackgroundSearch> RuntimeStep::search(const PlanRequest& request) const {
  const std::shared_ptr<const Graph> graph(step_, &step_->graph);  // lives as long as the step's
  return std::make_unique<search::BackgroundSearch>(
      graph, planners_of(request), make_problem(request), addresses(), limits_of(request));
}

bool RuntimeStep::is_improved_by(const search::BackgroundSearch& search,
                                 const PlanRequest& request) const {
  if (!search.ended()) throw RegenError("the search for a better plan has not ended");
  if (!search.outcome().ok()) raise(search.outcome().error());
  return plan_ &&
         value_or_raise(search::is_better(make_problem(request), *search.outcome(), *plan_));
}

py::dict RuntimeStep::take(const search::BackgroundSearch& search) {
  const search::Outcome outcome = value_or_raise(search.outcome());
  note(outcome);
  return report(outcome);
}

void RuntimeStep::set_gate(std::shared_ptr<Gate> gate, double quantum_seconds) {
  gate_ = std::move(gate);
  quantum_seconds_ = quantum_seconds;
  job_.reset();
  if (executor_) executor_->set_gate(gate_, quantum_seconds_);
}

void RuntimeStep::set_job(std::shared_ptr<share::DeviceLease> job, double quantum_seconds) {
  set_gate(job, quantum_seconds);
  job_ = std::move(job);
}

void RuntimeStep::compile(Bytes reserve, bool debug, bool releasable, bool capture) {
  if (!plan_) throw RegenError("there is no plan to compile");
  const py::gil_scoped_release unlocked;
  drop_executor();
  executor_ = value_or_raise(
      execute::Executor::compile(recording_, step_, *plan_, device_,
                                 execute::ExecutorOptions{reserve, debug, releasable, capture}));
  if (gate_) executor_->set_gate(gate_, quantum_seconds_);
  if (memory_) memory_->set_executor(executor_.get(), fixed_bytes());
}

void RuntimeStep::drop_executor() {
  if (memory_) memory_->clear_executor(executor_.get());
  executor_.reset();
}

Bytes RuntimeStep::spill() {
  execute::Executor& own = executor();
  const py::gil_scoped_release unlocked;
  return value_or_raise(own.spill());
}

void RuntimeStep::restore() {
  execute::Executor& own = executor();
  const py::gil_scoped_release unlocked;
  check(own.restore());
}

void RuntimeStep::prepare_spill() {
  execute::Executor& own = executor();
  const py::gil_scoped_release unlocked;
  check(own.prepare_spill());
}

void RuntimeStep::release() {
  const py::gil_scoped_release unlocked;
  drop_executor();
}

execute::Executor& RuntimeStep::executor() {
  if (!executor_) throw RegenError("the step is not compiled");
  return *executor_;
}

void RuntimeStep::bind(
    const std::vector<std::tuple<std::size_t, at::Tensor, std::int64_t>>& tensors) {
  for (const auto& [storage, tensor, offset] : tensors) {
    check(executor().bind(execute::StorageId(storage), tensor, offset));
  }
}

void RuntimeStep::run(std::size_t part) {
  execute::Executor& running = executor();
  Status status;
  {
    const py::gil_scoped_release unlocked;
    status = job_ ? run_as_job(part) : running.run(part);
  }
  check(status);
}

Status RuntimeStep::run_as_job(std::size_t part) {
  share::DeviceLease::Run run(*job_);
  REGEN_TRY(run.begin());
  run.release_options.finish = [device = device_] { device->finish(); };
  REGEN_TRY(executor_->restore());  // it may have made room since
  return executor_->run(part);
}

std::string RuntimeStep::plan_json() const {
  return write_plan(*plan_);
}
std::string RuntimeStep::graph_json() const {
  return value_or_raise(write_regen_graph(step_->graph));
}
std::string RuntimeStep::program_json() const {
  return execute::write_program(recording_->program);
}
std::string RuntimeStep::explain_plan() const {
  return to_text(step_->graph, *plan_, explain(step_->graph, *plan_));
}
Bytes RuntimeStep::unplanned_bytes() const {
  return live_bytes_keep_all(step_->graph).peak_bytes;
}
Bytes RuntimeStep::bound_bytes() const {
  return structural_bound(step_->graph).bytes;
}

py::dict RuntimeStep::memory() {
  py::dict memory;
  memory["arena"] = executor().arena_bytes();
  memory["host"] = executor().host_bytes();
  memory["captured"] = executor().repeated().captured();
  memory["captured_bytes"] = executor().repeated().bytes();
  memory["generators"] = execute::generator_bytes(recording_->program, device_->torch_device());
  std::size_t unforeseen = 0;
  std::string names;
  for (const execute::Deviation& deviation : executor().deviations()) {
    unforeseen += deviation.unforeseen + deviation.unasked;
    if (names.find(deviation.label) == std::string::npos) names += " " + deviation.label;
  }
  memory["deviations"] = unforeseen;
  memory["deviating"] = names;
  return memory;
}

std::vector<std::tuple<std::string, double, double>> RuntimeStep::trace() {
  std::vector<std::tuple<std::string, double, double>> rows;
  for (const execute::StepTime& time : executor().take_trace()) {
    if (plan_->steps[time.step].kind() != StepKind::kCompute) continue;
    const OpId op = plan_->steps[time.step].op();
    rows.emplace_back(step_->graph.name(op), time.begin, time.end);
  }
  return rows;
}

search::Problem RuntimeStep::make_problem(const PlanRequest& request) const {
  search::Problem problem;
  problem.graph = &step_->graph;
  problem.link = {request.to_host, request.to_device, request.both};
  problem.budget = request.budget;
  problem.host_budget = request.host_budget;
  return problem;
}

// The highest sum of what lives at once, whatever the addresses are. The validator needs no link
// for it.
Bytes RuntimeStep::highest_live_bytes(Plan plan) const {
  plan.addresses.reset();
  return value_or_raise(validate(step_->graph, plan, {})).peak_bytes;
}

py::dict RuntimeStep::report(const search::Outcome& outcome) {
  plan_ = outcome.plan;
  py::dict report;
  report["planner"] = outcome.planner;
  report["status"] = std::string(to_string(outcome.status));
  report["cost"] = outcome.simulation.cost;
  report["base_cost"] = outcome.base_cost;
  report["overhead"] = outcome.simulation.overhead;
  report["lower_bound"] = outcome.lower_bound;
  report["gap"] = outcome.gap;
  report["seconds"] = outcome.seconds;
  report["work"] = outcome.work;
  report["peak_bytes"] = outcome.simulation.peak_bytes;
  report["live_bytes"] = outcome.plan ? highest_live_bytes(*outcome.plan) : Bytes{0};
  report["host_peak_bytes"] = outcome.simulation.host_peak_bytes;
  report["offloaded_bytes"] = outcome.simulation.offloaded_bytes;
  report["recomputed"] = outcome.simulation.recomputed;
  report["steps"] = outcome.plan ? outcome.plan->steps.size() : 0;
  const auto others = [&](bool in_place) {
    return outcome.plan ? ops_in_other_variants(step_->graph, *outcome.plan, in_place) : 0;
  };
  report["other_algorithms"] = others(false);
  report["in_place"] = others(true);
  report["note"] = outcome.note;
  return report;
}

}  // namespace regen
