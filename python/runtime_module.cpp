// The runtime as Python sees it: one Step per captured program. Python captures, binds tensors and
// is told what happened; everything in between is C++ and runs without Python's lock.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "regen/execute/executor.h"
#include "regen/execute/link.h"
#include "regen/execute/memory_meter.h"
#include "regen/execute/record.h"
#include "regen/execute/step_graph.h"
#include "regen/graph/analysis.h"
#include "regen/graph/format_regen.h"
#include "regen/plan/addresses.h"
#include "regen/plan/explain.h"
#include "regen/plan/plan_json.h"
#include "regen/planners/addressed_plan.h"
#include "regen/simulate/simulate.h"

namespace py = pybind11;

namespace regen {
namespace {

// Becomes regen.BudgetError or regen.RegenError in Python.
struct BudgetError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct RegenError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void raise(const Error& error) {
  const bool budget = error.code == ErrorCode::kInfeasible || error.code == ErrorCode::kLimit;
  if (budget) throw BudgetError(error.message);
  throw RegenError(error.message);
}

template <typename T>
T value_or_raise(Result<T> result) {
  if (!result.ok()) raise(result.error());
  return std::move(result).value();
}

void check(const Status& status) {
  if (!status.ok()) raise(status.error());
}

struct PlanRequest {
  std::string planner;
  std::optional<Bytes> budget;
  std::optional<Bytes> host_budget;
  double seconds = 0;
  std::int64_t work = 0;
  double to_host = 0;
  double to_device = 0;
  double both = 0;
};

class Step {
 public:
  Step(const std::string& json, const std::string& device)
      : program_(value_or_raise(read_program(json, "program"))),
        device_(value_or_raise(open_device(device))) {}

  // Without Python's lock: an operator may be written in Python and tried on another thread.
  void record(const std::map<std::size_t, at::Tensor>& samples, int repeats,
              const std::string& cache_path, const std::string& algorithms) {
    const py::gil_scoped_release unlocked;
    RecordCache cache;
    if (!cache_path.empty()) {
      cache = value_or_raise(RecordCache::load(cache_path, device_->name()));
    }
    RecordOptions options;
    options.repeats = repeats;
    options.cache = &cache;
    options.algorithms = value_or_raise(parse_algorithms(algorithms));
    options.sample = [&](StorageId storage) {
      const auto found = samples.find(storage.index());
      return found == samples.end() ? at::Tensor() : found->second;
    };
    recording_ =
        std::make_shared<Recording>(value_or_raise(regen::record(program_, *device_, options)));
    if (!cache_path.empty() && cache.changed()) check(cache.save(cache_path, device_->name()));
  }

  void make_graph(Bytes runtime_bytes) {
    StepGraphOptions options;
    options.alignment = device_->alignment();
    options.runtime_bytes =
        runtime_bytes + generator_bytes(recording_->program, device_->torch_device());
    step_ = std::make_shared<StepGraph>(value_or_raise(make_step_graph(*recording_, options)));
  }

  py::dict plan(const PlanRequest& request) {
    const Problem problem = make_problem(request);
    const AddressOptions addresses{device_->alignment()};
    const Limits limits = limits_of(request);
    Outcome outcome;
    {
      const py::gil_scoped_release unlocked;
      outcome = value_or_raise(solve_addressed(request.planner, problem, addresses, limits));
    }
    return report(outcome);
  }

  py::dict least(const PlanRequest& request) {
    const Problem problem = make_problem(request);
    Outcome outcome;
    {
      const py::gil_scoped_release unlocked;
      outcome = value_or_raise(least_budget(
          request.planner, problem, AddressOptions{device_->alignment()}, limits_of(request)));
    }
    return report(outcome);
  }

  std::string explain_budget(Bytes budget) const {
    return explain_infeasible(step_->graph, budget).message;
  }

  void compile(Bytes reserve, bool debug) {
    if (!plan_) throw RegenError("there is no plan to compile");
    executor_.reset();
    const py::gil_scoped_release unlocked;
    executor_ = value_or_raise(
        Executor::compile(recording_, step_, *plan_, device_, ExecutorOptions{reserve, debug}));
  }

  void release() {
    const py::gil_scoped_release unlocked;
    executor_.reset();
  }

  void set_plan(const std::string& json) {
    plan_ = value_or_raise(parse_plan(json, "plan"));
    if (plan_->fingerprint != 0 && plan_->fingerprint != step_->graph.fingerprint()) {
      throw RegenError("the plan was made for another graph");
    }
    if (!plan_->addresses) give_addresses();
  }
  // Of the plan that was set, as plan() would report it.
  py::dict judge(const PlanRequest& request) {
    if (!plan_) throw RegenError("there is no plan to judge");
    const Problem problem = make_problem(request);
    Outcome outcome;
    outcome.planner = plan_->planner;
    outcome.status = PlanStatus::kFeasible;
    outcome.plan = plan_;
    SimulateOptions options;
    options.link = problem.link;
    outcome.simulation = value_or_raise(simulate(step_->graph, *plan_, options));
    outcome.base_cost = outcome.lower_bound = step_->graph.base_cost();
    return report(outcome);
  }
  std::string plan_json() const { return write_plan(*plan_); }
  std::string graph_json() const { return value_or_raise(write_regen_graph(step_->graph)); }
  std::string program_json() const { return write_program(recording_->program); }
  std::uint64_t fingerprint() const { return step_->graph.fingerprint(); }
  Bytes fixed_bytes() const { return step_->graph.fixed_bytes(); }
  Bytes unplanned_bytes() const { return live_bytes_keep_all(step_->graph).peak_bytes; }
  Bytes bound_bytes() const { return structural_bound(step_->graph).bytes; }
  double base_seconds() const { return step_->graph.base_cost(); }
  std::string explain_plan() const {
    return to_text(step_->graph, *plan_, explain(step_->graph, *plan_));
  }

  Executor& executor() {
    if (!executor_) throw RegenError("the step is not compiled");
    return *executor_;
  }
  void bind(const std::vector<std::tuple<std::size_t, at::Tensor, std::int64_t>>& tensors) {
    for (const auto& [storage, tensor, offset] : tensors) {
      check(executor().bind(StorageId(storage), tensor, offset));
    }
  }
  void set_scalars(const std::vector<double>& scalars) { check(executor().set_scalars(scalars)); }
  void run(std::size_t part) {
    Executor& running = executor();
    Status status;
    {
      const py::gil_scoped_release unlocked;
      status = running.run(part);
    }
    check(status);
  }

  py::dict memory() {
    py::dict memory;
    memory["arena"] = executor().arena_bytes();
    memory["host"] = executor().host_bytes();
    memory["generators"] = generator_bytes(recording_->program, device_->torch_device());
    std::size_t unforeseen = 0;
    std::string names;
    for (const Deviation& deviation : executor().deviations()) {
      unforeseen += deviation.unforeseen + deviation.unasked;
      if (names.find(deviation.label) == std::string::npos) names += " " + deviation.label;
    }
    memory["deviations"] = unforeseen;
    memory["deviating"] = names;
    return memory;
  }

  std::vector<std::tuple<std::string, double, double>> trace() {
    std::vector<std::tuple<std::string, double, double>> rows;
    for (const StepTime& time : executor().take_trace()) {
      if (plan_->steps[time.step].kind() != StepKind::kCompute) continue;
      const OpId op = plan_->steps[time.step].op();
      rows.emplace_back(step_->graph.name(op), time.begin, time.end);
    }
    return rows;
  }

 private:
  static std::size_t ops_in_other_variants(const Plan& plan) {
    std::set<OpId> ops;
    for (const auto& step : plan.steps) {
      if (step.kind() == StepKind::kCompute && step.choice() > 0) ops.insert(step.op());
    }
    return ops.size();
  }

  void give_addresses() {
    PackOptions options;
    options.alignment = device_->alignment();
    plan_ = value_or_raise(with_addresses(step_->graph, *plan_, options)).plan;
  }

  Problem make_problem(const PlanRequest& request) const {
    Problem problem;
    problem.graph = &step_->graph;
    problem.link = {request.to_host, request.to_device, request.both};
    problem.budget = request.budget;
    problem.host_budget = request.host_budget;
    return problem;
  }

  static Limits limits_of(const PlanRequest& request) {
    Limits limits;
    if (request.seconds > 0) limits.seconds = request.seconds;
    if (request.work > 0) limits.work = request.work;
    return limits;
  }

  py::dict report(const Outcome& outcome) {
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
    report["host_peak_bytes"] = outcome.simulation.host_peak_bytes;
    report["offloaded_bytes"] = outcome.simulation.offloaded_bytes;
    report["recomputed"] = outcome.simulation.recomputed;
    report["steps"] = outcome.plan ? outcome.plan->steps.size() : 0;
    report["other_algorithms"] = outcome.plan ? ops_in_other_variants(*outcome.plan) : 0;
    report["note"] = outcome.note;
    return report;
  }

  Program program_;
  std::shared_ptr<ExecutionDevice> device_;
  std::shared_ptr<const Recording> recording_;
  std::shared_ptr<const StepGraph> step_;
  std::optional<Plan> plan_;
  std::unique_ptr<Executor> executor_;
};

void bind_step(py::module_& module) {
  py::class_<PlanRequest>(module, "PlanRequest")
      .def(py::init<>())
      .def_readwrite("planner", &PlanRequest::planner)
      .def_readwrite("budget", &PlanRequest::budget)
      .def_readwrite("host_budget", &PlanRequest::host_budget)
      .def_readwrite("seconds", &PlanRequest::seconds)
      .def_readwrite("work", &PlanRequest::work)
      .def_readwrite("to_host", &PlanRequest::to_host)
      .def_readwrite("to_device", &PlanRequest::to_device)
      .def_readwrite("both", &PlanRequest::both);
  py::class_<Step>(module, "Step")
      .def(py::init<const std::string&, const std::string&>())
      .def("record", &Step::record)
      .def("make_graph", &Step::make_graph)
      .def("plan", &Step::plan)
      .def("least_budget", &Step::least)
      .def("explain_budget", &Step::explain_budget)
      .def("compile", &Step::compile)
      .def("release", &Step::release)
      .def("set_plan", &Step::set_plan)
      .def("judge", &Step::judge)
      .def("plan_json", &Step::plan_json)
      .def("graph_json", &Step::graph_json)
      .def("program_json", &Step::program_json)
      .def("explain_plan", &Step::explain_plan)
      .def_property_readonly("fingerprint", &Step::fingerprint)
      .def_property_readonly("fixed_bytes", &Step::fixed_bytes)
      .def_property_readonly("unplanned_bytes", &Step::unplanned_bytes)
      .def_property_readonly("bound_bytes", &Step::bound_bytes)
      .def_property_readonly("base_seconds", &Step::base_seconds)
      .def("bind", &Step::bind)
      .def("set_scalars", &Step::set_scalars)
      .def("cut_backward", [](Step& s, Bytes bytes) { s.executor().cut_backward(bytes); })
      .def_property_readonly("num_parts", [](Step& s) { return s.executor().num_parts(); })
      .def("results_of", [](Step& s, std::size_t part) { return s.executor().results_of(part); })
      .def("run", &Step::run)
      .def("result", [](Step& s, std::size_t index) { return s.executor().result(index); })
      .def("forget", [](Step& s) { s.executor().forget(); })
      .def("memory", &Step::memory)
      .def("set_trace", [](Step& s, bool on) { s.executor().set_trace(on); })
      .def("trace", &Step::trace)
      .def("set_host_timing", [](Step& s, bool on) { s.executor().set_host_timing(on); })
      .def("take_host_time", [](Step& s) {
        const HostTime time = s.executor().take_host_time();
        return std::tuple(time.seconds, time.call_seconds, time.calls);
      });
}

void bind_memory(py::module_& module) {
  module.def("install_memory_meter", [] { check(install_memory_meter()); });
  module.def("remove_memory_meter", [] { check(remove_memory_meter()); });
  module.def("reset_memory_peak",
             [](const std::string& device) { check(reset_memory_peak(c10::Device(device))); });
  module.def("memory_use", [](const std::string& device) {
    const MemoryUse use = value_or_raise(memory_use(c10::Device(device)));
    py::dict dict;
    dict["allocated"] = use.allocated;
    dict["allocated_peak"] = use.allocated_peak;
    dict["reserved"] = use.reserved;
    dict["reserved_peak"] = use.reserved_peak;
    dict["driver"] = use.driver;
    return dict;
  });
  module.def("device_name",
             [](const std::string& name) { return value_or_raise(open_device(name))->name(); });
  module.def("measure_link", [](const std::string& name) {
    const Link link = value_or_raise(measure_link(*value_or_raise(open_device(name))));
    return std::tuple(link.to_host, link.to_device, link.both);
  });
  module.def("device_memory", [](const std::string& name) {
    const auto device = value_or_raise(open_device(name));
    const DeviceMemory memory = value_or_raise(device->memory());
    return std::pair(memory.total, memory.free);
  });
  module.def("parse_bytes",
             [](const std::string& text) { return value_or_raise(parse_bytes(text)); });
  module.def("format_bytes", [](Bytes bytes) { return format_bytes(bytes); });
}

}  // namespace
}  // namespace regen

PYBIND11_MODULE(_runtime, module) {
  module.doc() = "regen's planner and executor";
  py::register_exception<regen::RegenError>(module, "RegenError", PyExc_RuntimeError);
  py::register_exception<regen::BudgetError>(module, "BudgetError", PyExc_MemoryError);
  regen::bind_step(module);
  regen::bind_memory(module);
}
