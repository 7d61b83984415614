#include "regen/session/state/recorded_step.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <utility>

#include "regen/base/progress/progress.h"
#include "regen/execute/device/memory_meter.h"
#include "regen/execute/placement/plan_memory.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/run/kept_contents.h"
#include "regen/graph/analysis.h"
#include "regen/plan/addresses.h"
#include "regen/plan/explain.h"
#include "regen/plan/validate.h"
#include "regen/session/state/planned_step.h"

namespace regen::session {
namespace {

constexpr int kCpuRepeats = 3;
constexpr int kCudaRepeats = 5;
// Pages that are taken in part: at the end of the step's arena, and behind the caller's small
// tensors. State that may leave has an arena too, and leaves pages to small tensors of the caller.
constexpr Bytes kPagesInPart = 2;
constexpr Bytes kPagesInPartReleasable = 5;
// Of an island's memory, when it was too little, so that few plans are made until values bring nothing
// larger.
constexpr double kLeastGrowth = 1.25;

execute::RecordOptions record_options(const RecordingOptions& options, bool on_cpu) {
  execute::RecordOptions made;
  made.repeats = options.repeats.value_or(on_cpu ? kCpuRepeats : kCudaRepeats);
  made.algorithms = options.algorithms;
  made.capture = options.cuda_graphs;
  made.anew = options.anew;
  made.interrupt = options.interrupt;
  made.sample = options.sample;
  if (!made.sample) made.sample = [](execute::StorageId) { return at::Tensor(); };
  return made;
}

// What libraries and kernels took for good while operators were recorded, and what the device's
// allocator has reserved around the caller's tensors without using it: bytes of the device that no
// one else can have.
Result<Bytes> library_bytes(execute::ExecutionDevice& device, const execute::MemoryUse& before,
                            bool releasable) {
  REGEN_TRY(execute::release_cached_memory(device.torch_device()));
  REGEN_ASSIGN(const execute::MemoryUse use, execute::memory_use(device.torch_device()));
  const Bytes libraries =
      note_library_bytes(device, std::max<Bytes>(0, use.allocated - before.allocated));
  const Bytes kernels =
      note_kernel_bytes(device, before.driver - before.reserved, use.driver - use.reserved);
  const Bytes pages = releasable ? kPagesInPartReleasable : kPagesInPart;
  const RuntimeReserve reserve = runtime_reserve(device);
  return libraries + reserve.kernels_before + kernels +
         std::max<Bytes>(0, use.reserved - use.allocated) + pages * reserve.page;
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

void add_scratch(execute::NodeVariant& variant, const std::vector<Bytes>& requests, Bytes unit) {
  for (const Bytes bytes : requests) {
    const Bytes offset = (variant.workspace + unit - 1) / unit * unit;
    variant.allocations.push_back({bytes, execute::StorageId(), offset});
    variant.workspace = offset + bytes;
  }
}

void scale_pool(execute::NodeRecord& record, double factor, Bytes unit) {
  const auto wanted = static_cast<Bytes>(std::ceil(static_cast<double>(record.workspace) * factor));
  record.workspace = (wanted + unit - 1) / unit * unit;
  for (execute::NodeAllocation& allocation : record.allocations) {
    if (allocation.pool) allocation.bytes = record.workspace;
  }
}

// What an island holds for its backward pass is its first result.
void set_held(execute::Recording& recording, execute::NodeId island, Bytes bytes) {
  execute::ValueSpec& held = recording.program.values[recording.program.nodes[island].outputs[0]];
  held.sizes = {bytes};
  recording.program.storages[held.storage].bytes = bytes;
  for (execute::NodeAllocation& allocation : recording.nodes[island].allocations) {
    if (allocation.result == held.storage) allocation.bytes = bytes;
  }
}

// Larger tensors than the sample's: in the backward pass they are larger in the same proportion.
void grow_island(execute::Recording& recording, const execute::Shortage& shortage, Bytes unit) {
  const execute::Program& program = recording.program;
  const execute::Node& island = program.nodes[shortage.node];
  const Bytes pool = std::max<Bytes>(recording.nodes[shortage.node].workspace, unit);
  const Bytes more = std::accumulate(shortage.requests.begin(), shortage.requests.end(), Bytes{0});
  double factor = std::max(kLeastGrowth, 1 + static_cast<double>(more) / static_cast<double>(pool));
  if (execute::holds_for_backward(island) && island.outputs[0].valid()) {
    const auto held =
        static_cast<double>(program.storages[program.values[island.outputs[0]].storage].bytes);
    if (shortage.held > 0 && held > 0) {
      factor = std::max(factor, static_cast<double>(shortage.held) / held);
      set_held(recording, shortage.node, shortage.held);
    }
  }
  scale_pool(recording.nodes[shortage.node], factor, unit);
  for (std::size_t n = 0; n < program.nodes.size(); ++n) {
    const execute::Node& other = program.nodes[execute::NodeId(n)];
    if (execute::is_island_backward(other) && other.args[0] == island.args[0]) {
      scale_pool(recording.nodes[execute::NodeId(n)], factor, unit);
    }
  }
}

bool moves_tensors(const Plan& plan) {
  return std::any_of(plan.steps.begin(), plan.steps.end(),
                     [](const Step& step) { return step.kind() == StepKind::kOffload; });
}

}  // namespace

Result<RecordedStep> CapturedStep::record(const RecordingOptions& options) const {
  auto link = options.link;
  if (!link)
    link = std::make_shared<LinkSource>(device_, LinkSourceOptions{.scope = options.scope});
  RecordedStep recorded(*this, std::move(link));
  Bytes libraries = 0;
  REGEN_TRY(in_scope(options.scope, [&]() -> Status {
    REGEN_ASSIGN(libraries, recorded.run_recording(options));
    return {};
  }));
  REGEN_TRY(recorded.make_graph(options, libraries));
  return recorded;
}

Result<Bytes> RecordedStep::run_recording(const RecordingOptions& options) {
  const c10::Device where = device()->torch_device();
  REGEN_ASSIGN(const execute::MemoryUse before, execute::memory_use(where));
  REGEN_ASSIGN(execute::Recording recording, run_recording_with_file(options));
  recording_ = std::make_shared<const execute::Recording>(std::move(recording));
  if (on_cpu() || !options.counts_libraries) return Bytes{0};
  return library_bytes(*device(), before, options.releasable);
}

Result<execute::Recording> RecordedStep::run_recording_with_file(const RecordingOptions& options) {
  const execute::Program& program = captured_.program();
  execute::RecordOptions made = record_options(options, on_cpu());
  if (options.cache && !options.measurements.empty()) {
    const std::string name = std::filesystem::path(options.measurements).filename().string();
    return execute::record_with_cache(program, *device(), made, *options.cache, execute::kProfiles,
                                      name);
  }
  made.on_distrust = [&](const Error& error) {
    if (options.warn) options.warn(error.message);
  };
  return execute::record_with_file(program, *device(), made, options.measurements);
}

Status RecordedStep::make_graph(const RecordingOptions& options, Bytes library_bytes) {
  reserve_ = runtime_reserve(*device());
  cuda_graphs_ = options.cuda_graphs;
  const auto calls = static_cast<Bytes>(cuda_graphs_ ? captured_.program().nodes.size() : 0);
  execute::StepGraphOptions& made = graph_options_;
  made.alignment = device()->alignment();
  made.lends_gradients = options.lends_gradients;
  made.runtime_bytes = reserve_.allocations + library_bytes + reserve_.captured_call * calls +
                       options.caller_bytes + saved_state_bytes();
  Json attributes{{"device", device()->name()}};
  if (options.names_link) {
    REGEN_ASSIGN(const Link known, link_->get());
    attributes["link"] = link_json(known);
  }
  made.attributes = attributes.dump(-1, ' ', false, Json::error_handler_t::replace);
  return make_graph();
}

Status RecordedStep::make_graph() {
  REGEN_ASSIGN(execute::StepGraph step, execute::make_step_graph(*recording_, graph_options_));
  step_ = std::make_shared<const execute::StepGraph>(std::move(step));
  unplanned_bytes_ = live_bytes_keep_all(graph()).peak_bytes;
  if (graph_options_.lends_gradients) {
    execute::StepGraphOptions outside = graph_options_;
    outside.lends_gradients = false;
    REGEN_ASSIGN(const execute::StepGraph other, execute::make_step_graph(*recording_, outside));
    unplanned_bytes_ = live_bytes_keep_all(other.graph).peak_bytes;
  }
  bound_bytes_ = structural_bound(graph()).bytes;
  return {};
}

Result<RecordedStep> RecordedStep::with_more(const execute::Shortage& shortage) const {
  auto recording = std::make_shared<execute::Recording>(*recording_);
  const Bytes unit = graph_options_.alignment;
  if (execute::is_island(recording->program.nodes[shortage.node])) {
    grow_island(*recording, shortage, unit);
  } else {
    execute::NodeRecord& record = recording->nodes[shortage.node];
    add_scratch(record, shortage.requests, unit);
    for (execute::NodeVariant& other : record.alternatives) {
      add_scratch(other, shortage.requests, unit);
    }
  }
  RecordedStep grown = *this;
  grown.recording_ = std::move(recording);
  REGEN_TRY(grown.make_graph());
  return grown;
}

Result<RecordedStep> RecordedStep::with_lent_gradients(bool lent) const {
  RecordedStep other = *this;
  other.graph_options_.lends_gradients = lent;
  REGEN_TRY(other.make_graph());
  return other;
}

Result<Bytes> RecordedStep::unplanned_bytes_at(const execute::StepSizes& sizes) const {
  REGEN_ASSIGN(const execute::Recording sized, execute::with_sizes(*recording_, sizes));
  REGEN_ASSIGN(const execute::StepGraph step, execute::make_step_graph(sized, graph_options_));
  return live_bytes_keep_all(step.graph).peak_bytes;
}

Bytes RecordedStep::saved_state_bytes() const {
  return execute::generator_bytes(recording_->program, device()->torch_device()) +
         execute::kept_contents_bytes(recording_->program);
}

search::Problem RecordedStep::problem(std::optional<Bytes> budget, std::optional<Bytes> host_budget,
                                      const Link& link) const {
  search::Problem problem;
  problem.graph = &graph();
  problem.link = link;
  problem.budget = budget;
  problem.host_budget = host_budget;
  return problem;
}

PlannedStep RecordedStep::take(const search::Outcome& outcome) const {
  const PlanOrigin origin = origin_of(outcome);
  auto report = std::make_shared<const PlanReport>(
      make_report(graph(), *outcome.plan, outcome.simulation, origin));
  return PlannedStep(*this, *outcome.plan, outcome.simulation, std::move(report));
}

Result<PlannedStep> RecordedStep::accept(Plan plan, const PlanOrigin& origin) const {
  REGEN_TRY(validate(graph(), plan));
  if (!plan.addresses) {
    const Progress progress({.stage = "place", .subject = "tensors"});
    PackOptions options;
    options.alignment = device()->alignment();
    REGEN_ASSIGN(AddressedPlan addressed, with_addresses(graph(), plan, options));
    plan = std::move(addressed.plan);
  }
  REGEN_TRY(execute::check_alignment(plan, device()->alignment()));
  SimulateOptions judge;
  if (moves_tensors(plan)) {
    REGEN_ASSIGN(judge.link, link_->get());
  }
  REGEN_ASSIGN(const Simulation simulation, simulate(graph(), plan, judge));
  auto report = std::make_shared<const PlanReport>(make_report(graph(), plan, simulation, origin));
  return PlannedStep(*this, std::move(plan), simulation, std::move(report));
}

Json link_json(const Link& link) {
  return {{"to_host", number(link.to_host)},
          {"to_device", number(link.to_device)},
          {"both", number(link.both)}};
}

}  // namespace regen::session
