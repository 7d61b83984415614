// The second state of a step: every operator has run alone on the device, so that times, sizes and
// allocations are known; the step is a graph that planners understand.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "regen/execute/program/step_graph.h"
#include "regen/execute/record/record.h"
#include "regen/execute/run/executor.h"
#include "regen/execute/run/step_sizes.h"
#include "regen/search/services/addressed_plan.h"
#include "regen/session/link_source.h"
#include "regen/session/report.h"
#include "regen/session/runtime_reserve.h"
#include "regen/session/state/captured_step.h"

namespace regen::session {

class PlannedStep;

struct RecordingOptions {
  std::optional<int> repeats;     // timed runs of each operator; absent: what suits the device
  std::string measurements = {};  // a file that processes share; empty: none
  // The folder of caches that the file is in; null: a file that a user has named.
  std::shared_ptr<CacheFolder> cache = nullptr;
  bool anew = false;  // the file is wrong: everything is measured, and written there
  // Called with a line on what is wrong with a file that a user has named.
  std::function<void(const std::string&)> warn = {};
  execute::Algorithms algorithms = execute::Algorithms::kDefault;
  bool cuda_graphs = false;      // equal stretches are launched as a whole
  bool releasable = false;       // the arena may leave the device
  bool lends_gradients = false;  // as StepGraphOptions::lends_gradients
  // Contents for storages where they matter (indices); an undefined tensor means made-up ones.
  std::function<at::Tensor(execute::StorageId)> sample = {};
  Bytes caller_bytes = 0;  // what a caller holds beside the step, as part of the graph
  // The budget is the whole process's: what libraries and the allocator hold counts.
  bool counts_libraries = false;
  DeviceScope scope = {};  // around the recording
  std::shared_ptr<LinkSource> link = nullptr;
  bool names_link = false;  // measures the link and writes it into the graph's attributes
  const std::atomic<bool>* interrupt = nullptr;  // as execute::RecordOptions::interrupt
};

// Cheap to copy: copies share what was recorded.
class RecordedStep {
 public:
  const CapturedStep& captured() const { return captured_; }
  const execute::Program& captured_program() const { return captured_.program(); }
  // Its values are as the device makes them.
  const execute::Program& program() const { return recording_->program; }
  const std::shared_ptr<execute::ExecutionDevice>& device() const { return captured_.device(); }
  const std::shared_ptr<const execute::Recording>& recording() const { return recording_; }
  const std::shared_ptr<const execute::StepGraph>& step() const { return step_; }
  const Graph& graph() const { return step_->graph; }
  std::shared_ptr<const Graph> shared_graph() const { return {step_, &step_->graph}; }
  LinkSource& link() const { return *link_; }
  // For plans to come.
  void set_link(std::shared_ptr<LinkSource> link) { link_ = std::move(link); }
  const RuntimeReserve& reserve() const { return reserve_; }
  bool cuda_graphs() const { return cuda_graphs_; }

  bool on_cpu() const { return device()->torch_device().is_cpu(); }
  Bytes fixed_bytes() const { return graph().fixed_bytes(); }
  // What keeping everything takes, before addresses; with gradients that are there all the time.
  Bytes unplanned_bytes() const { return unplanned_bytes_; }
  // The same for tensors of other sizes, none larger; workspace as it was recorded.
  Result<Bytes> unplanned_bytes_at(const execute::StepSizes& sizes) const;
  // No plan takes less.
  Bytes bound_bytes() const { return bound_bytes_; }
  double base_seconds() const { return graph().base_cost(); }
  // Of generators and of what a step changes before its first update.
  Bytes saved_state_bytes() const;

  search::Problem problem(std::optional<Bytes> budget, std::optional<Bytes> host_budget,
                          const Link& link) const;
  search::AddressOptions addresses() const { return {.alignment = device()->alignment()}; }

  // The same with more memory for a node: scratch for each of the requests, and of an island more of all
  // that depends on values, of its backward pass too.
  Result<RecordedStep> with_more(const execute::Shortage& shortage) const;
  // The same with gradients that are the plan's, or the caller's own.
  Result<RecordedStep> with_lent_gradients(bool lent) const;

  // A plan that a search of this process has found; it was judged already.
  PlannedStep take(const search::Outcome& outcome) const;
  // A plan from anywhere else: a file, a cache, another process. The validator checks it, addresses
  // are added where it has none, and the judge prices it. `origin` says what a search knew of it.
  Result<PlannedStep> accept(Plan plan, const PlanOrigin& origin) const;

 private:
  friend class CapturedStep;
  RecordedStep(CapturedStep captured, std::shared_ptr<LinkSource> link)
      : captured_(std::move(captured)), link_(std::move(link)) {}
  Result<Bytes> run_recording(const RecordingOptions& options);
  Result<execute::Recording> run_recording_with_file(const RecordingOptions& options);
  Status make_graph(const RecordingOptions& options, Bytes library_bytes);
  Status make_graph();

  CapturedStep captured_;
  std::shared_ptr<LinkSource> link_;
  std::shared_ptr<const execute::Recording> recording_;
  std::shared_ptr<const execute::StepGraph> step_;
  execute::StepGraphOptions graph_options_;
  RuntimeReserve reserve_;
  bool cuda_graphs_ = false;
  Bytes unplanned_bytes_ = 0;
  Bytes bound_bytes_ = 0;
};

// {"to_host": ..., "to_device": ..., "both": ...} in bytes per second.
Json link_json(const Link& link);

}  // namespace regen::session
