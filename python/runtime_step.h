// One captured program as Python sees it: recorded, planned, compiled, run.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "python/job_memory.h"
#include "python/runtime_errors.h"
#include "regen/execute/program/step_graph.h"
#include "regen/execute/record/record.h"
#include "regen/execute/run/executor.h"
#include "regen/search/services/background_search.h"
#include "regen/search/services/plan_curve.h"
#include "regen/share/client/device_lease.h"

namespace regen {

struct PlanRequest {
  std::vector<std::string> planners;
  std::optional<Bytes> budget;
  std::optional<Bytes> host_budget;
  double seconds = 0;
  std::int64_t work = 0;
  double to_host = 0;
  double to_device = 0;
  double both = 0;
};

// Everything that takes time runs without Python's lock.
class RuntimeStep {
 public:
  RuntimeStep(const std::string& json, const std::string& device);
  ~RuntimeStep() { drop_executor(); }

  void execute::record(const std::map<std::size_t, at::Tensor>& samples, int repeats,
                       const std::string& cache_path, const std::string& algorithms, bool capture);
  void make_graph(Bytes runtime_bytes);

  // The best plan of the planners, and what to say of it; it is this step's from now on.
  pybind11::dict plan(const PlanRequest& request);
  // The same for the least budget that a planner meets.
  pybind11::dict least(const PlanRequest& request);
  // Of the plan that was set, as plan() would report it.
  pybind11::dict judge(const PlanRequest& request);
  void set_plan(const std::string& json);
  std::string explain_budget(Bytes budget) const;

  // Plans for many budgets, up to the request's, in its seconds. From now on every plan that is
  // found is noted among them.
  void make_curve(const PlanRequest& request);
  // Their bytes and seconds, ascending in bytes.
  std::vector<std::pair<Bytes, double>> curve() const;
  // The quickest of them within so many bytes is this step's plan from now on; what to say of it,
  // or None if there is none.
  pybind11::object take_within(Bytes bytes);

  // Looks for a better plan in a thread of its own; the plan in use stays as it is.
  std::unique_ptr<search::BackgroundSearch> search(const PlanRequest& request) const;
  // True when an ended search has found a plan within the request's limits that is cheaper than
  // this step's. Raises if the search failed.
  bool is_improved_by(const search::BackgroundSearch& search, const PlanRequest& request) const;
  // The plan of an ended search becomes this step's, to be compiled.
  pybind11::dict take(const search::BackgroundSearch& search);

  // Runs ask the gate before each window; none: never. Not while one is under way.
  void set_gate(std::shared_ptr<Gate> gate, double quantum_seconds);
  // As set_gate; and each run begins and ends with the job's hold on the device.
  void set_job(std::shared_ptr<share::DeviceLease> job, double quantum_seconds);
  // Knows the step while it is compiled, so that its arena can be moved.
  void set_memory(std::shared_ptr<JobMemory> memory) { memory_ = std::move(memory); }
  void compile(Bytes reserve, bool debug, bool releasable, bool capture);
  void release();
  // Between two parts. Both do nothing when it is so already; spill() returns the bytes freed.
  Bytes spill();
  void restore();
  void prepare_spill();
  execute::Executor& executor();
  void execute::bind(const std::vector<std::tuple<std::size_t, at::Tensor, std::int64_t>>& tensors);
  void run(std::size_t part);

  std::string plan_json() const;
  std::string graph_json() const;
  std::string program_json() const;
  std::string explain_plan() const;
  std::uint64_t fingerprint() const { return step_->graph.fingerprint(); }
  Bytes fixed_bytes() const { return step_->graph.fixed_bytes(); }
  Bytes unplanned_bytes() const;
  Bytes bound_bytes() const;
  double base_seconds() const { return step_->graph.base_cost(); }
  pybind11::dict memory();
  std::vector<std::tuple<std::string, double, double>> trace();

 private:
  Status run_as_job(std::size_t part);
  void note(const search::Outcome& outcome);
  void drop_executor();
  search::Problem make_problem(const PlanRequest& request) const;
  search::AddressOptions addresses() const { return {device_->alignment()}; }
  Bytes highest_live_bytes(Plan plan) const;
  pybind11::dict report(const search::Outcome& outcome);

  execute::Program program_;
  std::shared_ptr<execute::ExecutionDevice> device_;
  std::shared_ptr<const execute::Recording> recording_;
  std::shared_ptr<const execute::StepGraph> step_;
  std::optional<Plan> plan_;
  std::shared_ptr<Gate> gate_;
  double quantum_seconds_ = execute::kQuantumSeconds;
  std::shared_ptr<share::DeviceLease> job_;
  std::shared_ptr<JobMemory> memory_;
  std::optional<search::PlanCurve> curve_;
  std::unique_ptr<execute::Executor> executor_;
};

}  // namespace regen
