#include "regen/execute/record.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <unordered_map>

#include "regen/execute/dtype.h"
#include "regen/execute/generator.h"
#include "regen/execute/operator_call.h"
#include "regen/execute/operator_facts.h"
#include "regen/execute/placement.h"
#include "regen/execute/program_values.h"
#include "regen/plan/pack.h"

namespace regen {
namespace {

// What torch says goes on about backends, builds and backtraces.
std::string first_sentence(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  return line.substr(0, line.find(". "));
}

constexpr double kHold = 300e-6;  // longer than the host needs to launch any operator

std::string layout_text(const ValueSpec& value, std::size_t storage) {
  Json json = {dtype_name(value.dtype), value.sizes, value.strides, value.offset, storage};
  return json.dump();
}

// The arguments of one call: every storage it touches, once, in order of appearance.
class CallArguments {
 public:
  CallArguments(const Program& program, const Node& node) : program_(program) {
    for (const ValueId value : values_read(node)) {
      values_.push_back(value);
      const StorageId storage = program.values[value].storage;
      if (std::find(storages_.begin(), storages_.end(), storage) == storages_.end()) {
        storages_.push_back(storage);
      }
    }
  }

  const std::vector<ValueId>& values() const { return values_; }
  const std::vector<StorageId>& storages() const { return storages_; }
  std::size_t place(StorageId storage) const {
    return static_cast<std::size_t>(std::find(storages_.begin(), storages_.end(), storage) -
                                    storages_.begin());
  }

  // What distinguishes this call from others on the same device.
  std::string key(const Node& node) const {
    std::string text = node.op + "." + node.overload + "(";
    for (const Json& argument : node.args) text += described(argument).dump() + ",";
    // By name: one named "value" is no reference to a value.
    for (auto it = node.kwargs.begin(); it != node.kwargs.end(); ++it) {
      text += it.key() + "=" + described(*it).dump() + ",";
    }
    text += ")";
    text += runs_with_gradients(node) ? "+" : "-";
    return text;
  }

 private:
  Json described(const Json& argument) const {
    if (argument.is_array()) {
      Json items = Json::array();
      for (const Json& item : argument) items.push_back(described(item));
      return items;
    }
    if (!argument.is_object() || !argument.contains("value")) return argument;
    const ValueSpec& value = program_.values[ValueId(argument["value"].get<std::size_t>())];
    return layout_text(value, place(value.storage));
  }

  const Program& program_;
  std::vector<ValueId> values_;
  std::vector<StorageId> storages_;
};

class Recorder {
 public:
  Recorder(const Program& program, ExecutionDevice& device, const RecordOptions& options)
      : device_(device), options_(options) {
    recording_.program = program;
    scalars_.reserve(program.scalars.size());
    for (const ScalarSpec& scalar : program.scalars) scalars_.push_back(scalar.value);
  }

  Result<Recording> run() {
    Program& program = recording_.program;
    warm_up_libraries();
    forget_computed_storages();
    recording_.nodes.resize(program.nodes.size());
    for (std::size_t n = 0; n < program.nodes.size(); ++n) {
      REGEN_ASSIGN(const CallRecord call, call_record(NodeId(n)));
      REGEN_TRY(apply(NodeId(n), call));
    }
    return std::move(recording_);
  }

 private:
  // What libraries keep for good (the workspace of cuBLAS) is taken now, from torch, and not by
  // the first call that is served at planned addresses.
  void warm_up_libraries() const {
    if (device_.torch_device().is_cpu()) return;
    const at::Tensor a = at::ones({64, 64}, at::TensorOptions().device(device_.torch_device()));
    at::addmm(a.select(0, 0), a, at::mm(a, a));
    at::bmm(a.unsqueeze(0), a.unsqueeze(0));
  }

  // Storages that nodes make are made anew, as the device has them, and get new ids; the old ones
  // stay behind without bytes or values, so that the ids of all others keep their meaning.
  void forget_computed_storages() {
    Program& program = recording_.program;
    for (ValueSpec& value : program.values) {
      if (program.storages[value.storage].role == Role::kComputed) value.storage = StorageId();
    }
    for (StorageSpec& storage : program.storages) {
      if (storage.role == Role::kComputed) storage = {"", Role::kComputed, 0, ""};
    }
  }

  Result<CallRecord> call_record(NodeId id) {
    const Node& node = recording_.program.nodes[id];
    const CallArguments arguments(recording_.program, node);
    const std::string key = arguments.key(node);
    RecordCache& cache = options_.cache != nullptr ? *options_.cache : own_cache_;
    if (const CallRecord* known = cache.find(key)) return *known;
    try {
      REGEN_ASSIGN(CallRecord call, measure(id, arguments));
      cache.insert(key, call);
      return call;
    } catch (const std::exception& error) {
      return bad_input(describe(recording_.program, id) + ": " + first_sentence(error.what()));
    }
  }

  Result<CallRecord> measure(NodeId id, const CallArguments& arguments) {
    const Program& program = recording_.program;
    REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program, id));
    std::vector<at::Tensor> memory;
    for (const StorageId storage : arguments.storages()) {
      memory.push_back(make_contents(storage, arguments));
    }
    const ArgumentSource source{
        [&](ValueId value) { return window(program.values[value], memory, arguments); }, scalars_,
        device_.torch_device()};
    REGEN_ASSIGN(const torch::jit::Stack stack,
                 make_arguments(program, id, handle.schema(), source));
    const auto call = [&] {
      torch::jit::Stack arguments_copy = stack;
      handle.callBoxed(arguments_copy);
      return take_results(arguments_copy);
    };
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const c10::AutoGradMode gradients(runs_with_gradients(program.nodes[id]));
    call();  // libraries set themselves up on first use
    CallRecord result;
    {
      REGEN_ASSIGN(RecordingScope scope, RecordingScope::enter(device_.torch_device()));
      scope.start();
      const std::vector<at::Tensor> tensors = call();
      describe_results(tensors, scope.stop(), memory, result);
    }
    result.seconds = time(call);
    return result;
  }

  // Whole storages filled with numbers that no kernel stumbles over.
  at::Tensor make_contents(StorageId storage, const CallArguments& arguments) {
    const Program& program = recording_.program;
    if (options_.sample && program.storages[storage].role != Role::kComputed) {
      at::Tensor sample = options_.sample(storage);
      if (sample.defined()) return sample.clone();
    }
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

  static at::Tensor window(const ValueSpec& value, const std::vector<at::Tensor>& memory,
                           const CallArguments& arguments) {
    const at::Tensor& base = memory[arguments.place(value.storage)];
    at::Tensor tensor = at::empty({0}, base.options().dtype(value.dtype));
    return tensor.set_(base.storage(), value.offset, value.sizes, value.strides);
  }

  void describe_results(const std::vector<at::Tensor>& tensors,
                        const std::vector<RecordedAllocation>& observed,
                        const std::vector<at::Tensor>& memory, CallRecord& record) const {
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

  void find_source(const at::Tensor& tensor, const std::vector<RecordedAllocation>& observed,
                   const std::vector<at::Tensor>& memory, ResultLayout& layout) const {
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

  // The median of runs, each behind a held-up queue, so that what the host needs to launch it is
  // not counted.
  template <typename Call>
  double time(const Call& call) {
    std::vector<double> seconds;
    double sum = 0;
    for (int i = 0; i < options_.repeats && (i == 0 || sum < options_.patience); ++i) {
      device_.hold_compute(kHold);
      const Event begin = device_.record_timed(Queue::kCompute);
      call();
      const Event end = device_.record_timed(Queue::kCompute);
      device_.synchronize();
      seconds.push_back(device_.seconds_between(begin, end));
      sum += seconds.back();
    }
    device_.forget_timed();
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }

  // Gives the node's results their storages and places its workspace.
  Status apply(NodeId id, const CallRecord& call) {
    Program& program = recording_.program;
    const Node& node = program.nodes[id];
    if (node.outputs.size() > call.results.size()) {
      return bad_input(describe(program, id) + ": " + std::to_string(call.results.size()) +
                       " results, expected " + std::to_string(node.outputs.size()));
    }
    const CallArguments arguments(program, node);
    std::vector<StorageId> made(call.allocations.size());
    bool views_only = true;
    for (std::size_t r = 0; r < node.outputs.size(); ++r) {
      if (!node.outputs[r].valid()) continue;
      const ResultLayout& layout = call.results[r];
      if (layout.source == ResultSource::kUndefined) {
        return bad_input(describe(program, id) + ": result " + std::to_string(r) +
                         " is undefined here, but is read later");
      }
      ValueSpec& value = program.values[node.outputs[r]];
      value.dtype = layout.dtype;
      value.sizes = layout.sizes;
      value.strides = layout.strides;
      value.offset = layout.offset;
      if (layout.source == ResultSource::kArgument) {
        value.storage = arguments.storages()[layout.index];
        continue;
      }
      views_only = false;
      if (layout.source == ResultSource::kHost) {
        value.storage = program.storages.push_back(
            {node.name, Role::kComputed, static_cast<Bytes>(layout.index), "cpu"});
        continue;
      }
      value.storage = storage_of(id, r, layout.index, call, made);
    }
    NodeRecord& record = recording_.nodes[id];
    const bool writes = node.outputs.empty() || has_effect(id);
    record.computes = !views_only || writes;
    record.seconds = record.computes ? call.seconds : 0;
    return place_workspace(call, made, record);
  }

  bool has_effect(NodeId id) const {
    const Node& node = recording_.program.nodes[id];
    if (node.random) return true;
    const auto handle = find_operator(recording_.program, id);
    return handle.ok() && !written_arguments(handle->schema()).empty();
  }

  StorageId storage_of(NodeId id, std::size_t result, std::size_t allocation,
                       const CallRecord& call, std::vector<StorageId>& made) {
    Program& program = recording_.program;
    std::string name = program.nodes[id].name;
    if (program.nodes[id].outputs.size() > 1) name += ":" + std::to_string(result);
    if (allocation >= made.size()) {
      return program.storages.push_back({name, Role::kComputed, 0, ""});
    }
    if (!made[allocation].valid()) {
      made[allocation] = program.storages.push_back(
          {name, Role::kComputed, call.allocations[allocation].bytes, ""});
    }
    return made[allocation];
  }

  // Results that nobody reads are freed when the call returns: workspace like any other.
  Status place_workspace(const CallRecord& call, const std::vector<StorageId>& made,
                         NodeRecord& record) {
    std::int64_t last = 1;
    for (const CallAllocation& a : call.allocations) {
      last = std::max(last, a.birth + 1);
      if (a.death != CallAllocation::kForever) last = std::max(last, a.death);
    }
    std::vector<Lifetime> lifetimes;
    std::vector<std::size_t> which;
    for (std::size_t k = 0; k < call.allocations.size(); ++k) {
      const CallAllocation& a = call.allocations[k];
      record.allocations.push_back({a.bytes, made[k], 0});
      if (made[k].valid()) continue;
      lifetimes.push_back({a.birth, std::max(a.birth + 1, std::min(a.death, last)), a.bytes});
      which.push_back(k);
    }
    if (lifetimes.empty()) return {};
    PackOptions options;
    options.alignment = device_.alignment();
    options.limits.work = 20'000;
    REGEN_ASSIGN(const Packing packing, pack(lifetimes, options));
    record.workspace = packing.height;
    for (std::size_t i = 0; i < which.size(); ++i) {
      record.allocations[which[i]].offset = packing.offsets[i];
    }
    return {};
  }

  ExecutionDevice& device_;
  const RecordOptions& options_;
  Recording recording_;
  RecordCache own_cache_;
  std::vector<double> scalars_;
};

}  // namespace

Result<Recording> record(const Program& program, ExecutionDevice& device,
                         const RecordOptions& options) {
  std::optional<Result<Recording>> recording;
  device.run([&] {
    const GeneratorGuard generator(device.torch_device());
    recording.emplace(Recorder(program, device, options).run());
  });
  return std::move(*recording);
}

}  // namespace regen
