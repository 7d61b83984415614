#include "regen/execute/record/call_measurement.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "regen/execute/placement/placement.h"
#include "regen/execute/program/below_autograd.h"
#include "regen/execute/program/operator_call.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/run/warn_once.h"

namespace regen::execute {
namespace {

constexpr double kHold = 300e-6;  // longer than the host needs to launch a burst of operators
// Short calls are timed some at once, as they follow each other in a step: between two kernels there
// is a gap of about a microsecond, and one call alone does not show it.
constexpr double kBurst = 500e-6;
constexpr int kMostInBurst = 4;

at::Tensor view(const ValueSpec& value, const std::vector<at::Tensor>& memory,
                const CallArguments& arguments) {
  const at::Tensor& base = memory[arguments.place(value.storage)];
  at::Tensor tensor = at::empty({0}, base.options().dtype(value.dtype));
  return tensor.set_(base.storage(), value.offset, value.sizes, value.strides);
}

bool is_index(c10::ScalarType type) {
  return type == c10::ScalarType::Long || type == c10::ScalarType::Int;
}

}  // namespace

bool is_conclusive(const CallRecord& record) {
  if (record.results.empty()) return false;
  std::int64_t items = 1;
  for (const std::int64_t size : record.results[0].sizes) {
    if (size == 0) return false;
    items = size >= kConclusiveItems / items + 1 ? kConclusiveItems : items * size;
  }
  return items >= kConclusiveItems;
}

// Kernels that add up before they write need enough elements to be caught if they do not.
bool worth_a_trial(const c10::OperatorHandle& handle, const CallRecord& record) {
  const OverwritingNature nature = overwriting_nature(handle);
  if (nature == OverwritingNature::kUnsafe || record.results.empty()) return false;
  return nature == OverwritingNature::kElementwise || is_conclusive(record);
}

CallMeasurement::CallMeasurement(const Program& program, ExecutionDevice& device,
                                 const RecordOptions& options)
    : program_(program), device_(device), options_(options) {
  for (const ScalarSpec& scalar : program.scalars) scalars_.push_back(scalar.value);
}

Result<CallRecord> CallMeasurement::of(NodeId id, const CallArguments& arguments,
                                       const std::vector<Bytes>* caps) const {
  REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, id));
  const std::vector<at::Tensor> memory = make_memory(arguments, true);
  REGEN_ASSIGN(const torch::jit::Stack stack, make_stack(id, arguments, memory));
  RepeatableCall call;
  call.run = [&] {
    torch::jit::Stack arguments_copy = stack;
    handle.callBoxed(arguments_copy);
    return take_results(arguments_copy);
  };
  call.describe = [&](const std::vector<at::Tensor>& tensors,
                      const std::vector<RecordedAllocation>& observed,
                      CallRecord& record) { describe_results(tensors, observed, memory, record); };
  call.time = [&] { return time(call.run); };
  const WarnOnce warnings;
  const BelowAutograd below(runs_with_gradients(program_, program_.nodes[id]));
  REGEN_ASSIGN(CallRecord record, measure(id, call, caps));
  record.shorter_seconds = shorter_seconds(id, stack, call);
  REGEN_ASSIGN(
      record.overwritable,
      overwritable(id, arguments, {call.run, [&](const auto& run) { return time(run); }, memory},
                   record));
  return record;
}

// Wherever it has the same bits: what is kept for it must not depend on how long it took today.
std::optional<double> CallMeasurement::shorter_seconds(NodeId id,
                                                       const torch::jit::Stack& arguments,
                                                       const RepeatableCall& call) const {
  const std::optional<ShorterRun> shorter = shorter_run(program_.nodes[id]);
  if (!shorter) return {};
  try {
    const std::vector<at::Tensor> results = call.run();
    if (results[0].numel() < kConclusiveItems) return {};
    torch::jit::Stack taken;
    for (const auto& [from_results, index] : shorter->arguments) {
      taken.push_back(from_results ? c10::IValue(results[index]) : arguments[index]);
    }
    const c10::OperatorHandle handle =
        c10::Dispatcher::singleton().findSchemaOrThrow(std::string(shorter->op).c_str(), "");
    const auto run = [&] {
      torch::jit::Stack stack = taken;
      handle.callBoxed(stack);
      return take_results(stack);
    };
    if (!same_bytes(run()[0], results[0])) return {};
    return time(run);
  } catch (const std::exception&) {
    return {};  // there is no such kernel here, or not for these types
  }
}

// Last of all, as trials change what the call is made on.
Result<std::vector<std::size_t>> CallMeasurement::overwritable(NodeId id,
                                                               const CallArguments& arguments,
                                                               const TrialCall& trial,
                                                               const CallRecord& record) const {
  REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, id));
  std::vector<std::size_t> candidates;
  if (worth_a_trial(handle, record) && can_be_tried(program_.nodes[id], handle.schema())) {
    for (std::size_t storage = 0; storage < arguments.storages().size(); ++storage) {
      if (laid_out_as_first_result(program_, arguments, storage, record)) {
        candidates.push_back(storage);
      }
    }
  }
  return find_overwritable(trial, record, candidates, device_.torch_device());
}

Result<CallRecord> CallMeasurement::measure(NodeId id, const RepeatableCall& call,
                                            const std::vector<Bytes>* caps) const {
  call.run();  // libraries set themselves up on first use
  CallRecord result;
  {
    REGEN_ASSIGN(RecordingScope scope, RecordingScope::enter(device_.torch_device()));
    scope.start();
    const std::vector<at::Tensor> tensors = call.run();
    call.describe(tensors, scope.stop(), result);
  }
  if (options_.algorithms == Algorithms::kAny) {
    REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, id));
    const bool worth_it = largest_scratch(result.allocations) >= options_.search.least_scratch;
    if (worth_it && can_be_tried(program_.nodes[id], handle.schema())) {
      return search_algorithms(call, device_, options_.search, caps);
    }
    result.alternatives.emplace();
  }
  result.seconds = call.time();
  return result;
}

Result<torch::jit::Stack> CallMeasurement::make_stack(NodeId id, const CallArguments& arguments,
                                                      const std::vector<at::Tensor>& memory) const {
  REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, id));
  const ArgumentSource source{
      [&](ValueId value) { return view(program_.values[value], memory, arguments); }, scalars_,
      device_.torch_device()};
  return make_arguments(program_, id, handle.schema(), source);
}

// Indices first: what makes them is freed before anything else is allocated.
std::vector<at::Tensor> CallMeasurement::make_memory(const CallArguments& arguments,
                                                     bool real_indices) const {
  std::vector<at::Tensor> memory(arguments.storages().size());
  for (const ValueId value : arguments.values()) {
    const ValueSpec& spec = program_.values[value];
    at::Tensor& contents = memory[arguments.place(spec.storage)];
    if (real_indices && is_index(spec.dtype) && !contents.defined()) {
      contents = made_indices(spec.storage);
    }
  }
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i].defined()) memory[i] = make_contents(arguments.storages()[i], arguments);
  }
  return memory;
}

// As the node that makes them does from made-up contents: how long kernels take that scatter or
// gather depends on where to. Undefined if they come from elsewhere or cannot be had.
at::Tensor CallMeasurement::made_indices(StorageId storage) const {
  if (program_.storages[storage].role != Role::kComputed) return {};
  if (at::Tensor sample = sample_of(storage); sample.defined()) return sample;
  for (std::size_t n = 0; n < program_.nodes.size(); ++n) {
    const Node& node = program_.nodes[NodeId(n)];
    for (std::size_t r = 0; r < node.outputs.size(); ++r) {
      const ValueId value = node.outputs[r];
      if (!value.valid() || program_.values[value].storage != storage) continue;
      return result_of(NodeId(n), r);
    }
  }
  return {};
}

// The whole storage of one result of a call.
at::Tensor CallMeasurement::result_of(NodeId id, std::size_t result) const {
  try {
    const CallArguments arguments(program_, program_.nodes[id]);
    const std::vector<at::Tensor> memory = make_memory(arguments, false);
    const auto handle = find_operator(program_, id);
    auto stack = make_stack(id, arguments, memory);
    if (!handle.ok() || !stack.ok()) return {};
    const BelowAutograd below(runs_with_gradients(program_, program_.nodes[id]));
    handle->callBoxed(*stack);
    const at::Tensor made = take_results(*stack)[result];
    const auto items = static_cast<std::int64_t>(made.storage().nbytes()) / made.element_size();
    return at::empty({0}, made.options()).set_(made.storage(), 0, {items}, {1});
  } catch (const std::exception&) {
    return {};  // the measurement of that node says why
  }
}

// A copy of the contents that are given for a storage, where they are of its size; else undefined.
at::Tensor CallMeasurement::sample_of(StorageId storage) const {
  if (!options_.sample) return {};
  const at::Tensor sample = options_.sample(storage);
  if (!sample.defined()) return {};
  const StorageSpec& spec = program_.storages[storage];
  const bool made = spec.role == Role::kComputed;
  if (made && static_cast<Bytes>(sample.nbytes()) != spec.bytes) return {};
  return sample.clone();
}

// Whole storages filled with numbers that no kernel stumbles over.
at::Tensor CallMeasurement::make_contents(StorageId storage, const CallArguments& arguments) const {
  const Program& program = program_;
  if (at::Tensor sample = sample_of(storage); sample.defined()) return sample;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  for (const ValueId value : arguments.values()) {
    if (program.values[value].storage == storage) dtype = program.values[value].dtype;
  }
  const auto item = static_cast<Bytes>(c10::elementSize(dtype));
  const Bytes items = (program.storages[storage].bytes + item - 1) / item;
  const std::string& elsewhere = program.storages[storage].device;
  const c10::Device device = elsewhere.empty() ? device_.torch_device() : c10::Device(elsewhere);
  at::Tensor contents = at::zeros({items}, at::TensorOptions().dtype(dtype).device(device));
  if (at::isFloatingType(dtype) && c10::elementSize(dtype) >= 2) contents.uniform_(0.1, 1.0);
  return contents;
}

void CallMeasurement::describe_results(const std::vector<at::Tensor>& tensors,
                                       const std::vector<RecordedAllocation>& observed,
                                       const std::vector<at::Tensor>& memory,
                                       CallRecord& record) const {
  for (const RecordedAllocation& a : observed) {
    const bool freed = a.death != RecordedAllocation::kAlive;
    record.allocations.push_back(
        {a.bytes, a.birth, freed ? std::int64_t{a.death} : CallAllocation::kForever});
  }
  for (const at::Tensor& tensor : tensors) {
    ResultLayout layout;
    if (tensor.defined()) {
      layout.dtype = tensor.scalar_type();
      layout.sizes = tensor.sizes().vec();
      layout.strides = tensor.strides().vec();
      layout.offset = tensor.storage_offset();
      find_source(tensor, observed, memory, layout);
    }
    record.results.push_back(std::move(layout));
  }
}

void CallMeasurement::find_source(const at::Tensor& tensor,
                                  const std::vector<RecordedAllocation>& observed,
                                  const std::vector<at::Tensor>& memory,
                                  ResultLayout& layout) const {
  const c10::Device at_device = device_.torch_device();
  const void* data = tensor.storage().data();
  for (std::size_t m = 0; m < memory.size(); ++m) {
    if (memory[m].storage().is_alias_of(tensor.storage()) ||
        (data != nullptr && memory[m].storage().data() == data)) {
      layout.source = ResultSource::kArgument;
      layout.index = m;
      return;
    }
  }
  if (tensor.device().is_cpu() && !at_device.is_cpu()) {
    layout.source = ResultSource::kHost;
    layout.index = tensor.storage().nbytes();
    return;
  }
  layout.source = ResultSource::kAllocation;
  const int allocation = find_allocation(observed, data);
  layout.index = allocation >= 0 ? static_cast<std::size_t>(allocation)
                                 : observed.size();  // none: it has no bytes
}

// The median of bursts, each behind a held-up queue, so that what the host needs to launch it is
// not counted.
double CallMeasurement::time(const std::function<void()>& call) const {
  const double one = time_burst(call, 1);
  const int burst = std::clamp(static_cast<int>(kBurst / std::max(one, 1e-9)), 1, kMostInBurst);
  std::vector<double> seconds;
  if (burst == 1) seconds.push_back(one);
  double sum = one;
  while (seconds.empty() ||
         (static_cast<int>(seconds.size()) < options_.repeats && sum < options_.patience)) {
    seconds.push_back(time_burst(call, burst));
    sum += seconds.back() * burst;
  }
  device_.forget_timed();
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

// Seconds of one of so many calls in a row.
double CallMeasurement::time_burst(const std::function<void()>& call, int calls) const {
  device_.hold_compute(kHold);
  const Event begin = device_.record_timed(Queue::kCompute);
  for (int i = 0; i < calls; ++i) call();
  const Event end = device_.record_timed(Queue::kCompute);
  device_.synchronize();
  return device_.seconds_between(begin, end) / calls;
}

}  // namespace regen::execute
