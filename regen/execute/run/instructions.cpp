#include "regen/execute/run/instructions.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "regen/execute/program/operator_call.h"
#include "regen/execute/program/operator_facts.h"
#include "regen/execute/program/program_values.h"

namespace regen::execute {
namespace {

c10::Storage storage_at(void* data, Bytes bytes, c10::Device device) {
  return c10::Storage(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(bytes),
                      c10::DataPtr(data, device), nullptr, false);
}

constexpr Bytes kPoolUnit = 512;  // where the stretches of a pool begin

class Compiler {
 public:
  Compiler(const Recording& recording, const StepGraph& step, const Plan& plan,
           const PlanMemory& memory, const CompileTarget& target)
      : program_(recording.program),
        records_(recording.nodes),
        step_(step),
        graph_(step.graph),
        plan_(plan),
        memory_(memory),
        target_(target),
        places_(graph_.num_tensors()),
        fetch_(graph_.num_tensors(), kNone),
        offload_(graph_.num_tensors(), kNone),
        host_(graph_.num_tensors(), 0),
        runs_(graph_.num_ops(), 0),
        random_(graph_.num_ops(), -1) {}

  Result<InstructionList> compile() {
    for (const ScalarSpec& scalar : program_.scalars) scalars_.push_back(scalar.value);
    list_.bound.resize(program_.storages.size());
    list_.last.resize(program_.storages.size());
    for (const TensorId t : graph_.tensors()) make_bound(t);
    for (std::size_t s = 0; s < program_.storages.size(); ++s) make_host_memory(StorageId(s));
    for (now_ = 0; now_ < plan_.steps.size(); ++now_) {
      const Step& step = plan_.steps[now_];
      switch (step.kind()) {
        case StepKind::kCompute:
          REGEN_TRY(compute(step));
          break;
        case StepKind::kOffload:
          offload(step.tensor());
          break;
        case StepKind::kFetch:
          fetch(step.tensor());
          break;
        case StepKind::kRelease:
          release(step.tensor());
          break;
      }
    }
    await_everything();
    for (const TensorId t : graph_.tensors()) {
      if (!places_[t].there) continue;
      list_.last[step_.storages[t]] = places_[t].storage;
      list_.lives[places_[t].life].end =
          list_.instructions.size() + 1;  // a result, to be asked for
    }
    for (ArenaLife& life : list_.lives) {
      if (life.end == kRestOfStep) life.end = list_.instructions.size();
    }
    widen_pools();
    return std::move(list_);
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  static constexpr std::size_t kRestOfStep = SIZE_MAX;

  struct Place {
    bool there = false;
    Bytes offset = 0;
    c10::Storage storage;
    std::size_t life = 0;
  };

  void make_bound(TensorId t) {
    const StorageId storage = step_.storages[t];
    if (!graph_.fixed(t) || !storage.valid()) return;
    const StorageSpec& spec = program_.storages[storage];
    list_.bound[storage] = storage_at(
        nullptr, spec.bytes, spec.device.empty() ? target_.device : c10::Device(spec.device));
  }

  bool on_host(StorageId storage) const {
    const StorageSpec& spec = program_.storages[storage];
    return spec.role == Role::kComputed && !spec.device.empty();
  }

  void make_host_memory(StorageId storage) {
    if (!on_host(storage)) return;
    list_.bound[storage] = at::zeros({program_.storages[storage].bytes}, at::kByte).storage();
  }

  void add(InstructionKind kind, std::size_t index) {
    list_.instructions.push_back(
        {kind, static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(now_)});
  }

  void allocate(TensorId t) {
    const Bytes planned = (*plan_.addresses)[next_address_++];
    put(t, stays(t) ? memory_.arena + step_.resident[t] : planned);
  }

  // From the next instruction on, which fills it.
  void put(TensorId t, Bytes offset) {
    places_[t] = {true, offset, arena_storage(t, offset), list_.lives.size()};
    list_.lives.push_back({offset, program_.storages[step_.storages[t]].bytes,
                           list_.instructions.size() + 1, kRestOfStep});
  }

  // Before the next instruction. What stays is there for the rest of the step, whatever the plan
  // says.
  void end_life(TensorId t) {
    if (!stays(t)) list_.lives[places_[t].life].end = list_.instructions.size();
  }

  bool stays(TensorId t) const { return step_.resident[t] >= 0; }

  // In the place of something that is read for the last time, and may be on its way to the host.
  void take_over(TensorId overwritten, TensorId t) {
    await(offload_[overwritten]);
    put(t, places_[overwritten].offset);
  }

  c10::Storage arena_storage(TensorId t, Bytes offset) const {
    return storage_at(target_.arena + offset, program_.storages[step_.storages[t]].bytes,
                      target_.device);
  }

  void await(std::uint32_t& copy) {
    if (copy == kNone) return;
    add(InstructionKind::kAwait, copy);
    copy = kNone;
  }

  // So that the next step finds no copy of this one under way.
  void await_everything() {
    for (const TensorId t : graph_.tensors()) {
      await(fetch_[t]);
      await(offload_[t]);
    }
  }

  Status compute(const Step& step) {
    const OpId op = step.op();
    if (op == step_.boundary) {
      add(InstructionKind::kBoundary, 0);
      return {};
    }
    const VariantId variant = step.variant(graph_);
    const TensorId overwritten = graph_.overwrites(variant);
    for (const TensorId t : graph_.reads(variant)) await(fetch_[t]);
    // The same values again, but not while a copy of them is moving.
    for (const TensorId t : graph_.makes(variant)) {
      await(fetch_[t]);
      await(offload_[t]);
      if (overwritten.valid() && t == graph_.makes(variant)[0]) take_over(overwritten, t);
      if (!places_[t].there) allocate(t);
    }
    Bytes workspace = 0;
    if (graph_.workspace(variant) > 0) workspace = (*plan_.addresses)[next_address_++];
    REGEN_ASSIGN(ComputeInstruction call, make_call(op, step.choice(), workspace));
    add(InstructionKind::kCompute, list_.computes.size());
    list_.computes.push_back(std::move(call));
    ++runs_[op];
    if (overwritten.valid()) {
      end_life(overwritten);
      places_[overwritten] = {};
    }
    return {};
  }

  Result<ComputeInstruction> make_call(OpId op, std::size_t choice, Bytes workspace) {
    const NodeId node = step_.nodes[op];
    if (runs_[op] > 0 && step_.shortened[op]) return make_shorter_call(op);
    REGEN_ASSIGN(const c10::OperatorHandle handle, find_operator(program_, node));
    REGEN_ASSIGN(torch::jit::Stack arguments, arguments_of(node, handle));
    ComputeInstruction call{.handle = handle,
                            .node = node,
                            .arguments = std::move(arguments),
                            .choice = choice,
                            .chooses = !records_[node].alternatives.empty(),
                            .rerun = runs_[op] > 0};
    call.forward = runs_with_gradients(program_, program_.nodes[node]);
    if (call.rerun) {
      for (const std::size_t position : silently_written(program_.nodes[node])) {
        call.arguments[position] = c10::IValue();
      }
    }
    place_allocations(node, workspace, call);
    const std::vector<ValueId>& outputs = program_.nodes[node].outputs;
    for (std::size_t r = 0; r < outputs.size(); ++r) {
      if (!outputs[r].valid() || !on_host(program_.values[outputs[r]].storage)) continue;
      call.host_results.push_back(
          {static_cast<std::uint32_t>(r), program_.values[outputs[r]].storage});
    }
    find_scalar_arguments(handle.schema(), call);
    if (graph_.random(op)) {
      if (random_[op] < 0) random_[op] = static_cast<std::int32_t>(list_.num_random++);
      call.random = random_[op];
    }
    return call;
  }

  Result<torch::jit::Stack> arguments_of(NodeId node, const c10::OperatorHandle& handle) {
    const ArgumentSource source{[this](ValueId value) { return tensor(value); }, scalars_,
                                target_.device};
    return make_arguments(program_, node, handle.schema(), source);
  }

  TensorId result(NodeId node, std::size_t index) const {
    return step_.tensors[program_.values[program_.nodes[node].outputs[index]].storage];
  }

  // Makes the first result; the others are where the first run has left them.
  Result<ComputeInstruction> make_shorter_call(OpId op) {
    const NodeId node = step_.nodes[op];
    REGEN_ASSIGN(const c10::OperatorHandle first, find_operator(program_, node));
    REGEN_ASSIGN(const torch::jit::Stack arguments, arguments_of(node, first));
    const ShorterRun shorter = *shorter_run(program_.nodes[node]);
    ComputeInstruction call{.handle = c10::Dispatcher::singleton().findSchemaOrThrow(
                                std::string(shorter.op).c_str(), ""),
                            .node = node,
                            .rerun = true,
                            .shortened = true,
                            .forward = runs_with_gradients(program_, program_.nodes[node])};
    for (const auto& [from_results, index] : shorter.arguments) {
      if (from_results) {
        call.arguments.push_back(tensor(program_.nodes[node].outputs[index]));
      } else {
        call.arguments.push_back(arguments[index]);
      }
    }
    const TensorId made = result(node, 0);
    call.slots.push_back(
        {program_.storages[step_.storages[made]].bytes, target_.arena + places_[made].offset});
    call.placed.push_back({0, 0});
    return call;
  }

  void place_allocations(NodeId node, Bytes workspace, ComputeInstruction& call) {
    const bool overwrites = call.choice > records_[node].alternatives.size();
    for (const NodeAllocation& allocation : records_[node].variant(call.choice).allocations) {
      PlacedSlot slot{.bytes = allocation.bytes,
                      .address = target_.arena + workspace + allocation.offset,
                      .at_most = allocation.at_most,
                      .pool = allocation.pool};
      if (allocation.result.valid()) {
        const TensorId t = step_.tensors[allocation.result];
        if (graph_.fixed(t)) {
          slot.address = nullptr;
          call.external.push_back(
              {static_cast<std::uint32_t>(call.slots.size()), allocation.result});
        } else {
          slot.address = target_.arena + places_[t].offset;
          slot.in_turn = overwrites;
        }
      }
      call.slots.push_back(slot);
    }
    place_results(node, call);
  }

  void place_results(NodeId node, ComputeInstruction& call) const {
    const auto& allocations = records_[node].variant(call.choice).allocations;
    const std::vector<ValueId>& outputs = program_.nodes[node].outputs;
    for (std::size_t r = 0; r < outputs.size(); ++r) {
      if (!outputs[r].valid()) continue;
      const StorageId storage = program_.values[outputs[r]].storage;
      for (std::size_t k = 0; k < allocations.size(); ++k) {
        if (allocations[k].result != storage || allocations[k].bytes == 0) continue;
        call.placed.push_back({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(k)});
        break;
      }
    }
  }

  void find_scalar_arguments(const c10::FunctionSchema& schema, ComputeInstruction& call) const {
    const Node& node = program_.nodes[call.node];
    if (scalar_references(node).empty()) return;
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      const Json* json = argument_json(node, schema, i);
      if (json == nullptr) continue;
      Node one;
      one.args.push_back(*json);
      if (!scalar_references(one).empty()) {
        call.scalar_arguments.push_back(static_cast<std::uint32_t>(i));
      }
    }
  }

  at::Tensor tensor(ValueId value) {
    const ValueSpec& spec = program_.values[value];
    const TensorId t = step_.tensors[spec.storage];
    const c10::Storage& storage =
        graph_.fixed(t) || on_host(spec.storage) ? list_.bound[spec.storage] : places_[t].storage;
    at::Tensor& known = views_[{value, storage.unsafeGetStorageImpl()}];
    if (!known.defined()) known = make_view(spec, storage);
    return known;
  }

  // An island may ask for more than its recording: all of the arena that nothing lives in while it runs
  // is its pool.
  void widen_pools() {
    for (std::size_t i = 0; i < list_.instructions.size(); ++i) {
      if (list_.instructions[i].kind != InstructionKind::kCompute) continue;
      ComputeInstruction& call = list_.computes[list_.instructions[i].index];
      if (std::ranges::none_of(call.slots, &PlacedSlot::pool)) continue;
      std::erase_if(call.slots, &PlacedSlot::pool);
      for (const auto& [offset, bytes] : gaps_at(i)) {
        call.slots.push_back({.bytes = bytes, .address = target_.arena + offset, .pool = true});
      }
    }
  }

  // What the instruction makes is there from the next one on.
  std::vector<std::pair<Bytes, Bytes>> gaps_at(std::size_t instruction) const {
    std::vector<std::pair<Bytes, Bytes>> taken;
    for (const ArenaLife& life : list_.lives) {
      if (life.begin <= instruction + 1 && life.end > instruction) {
        taken.emplace_back(life.offset, life.offset + life.bytes);
      }
    }
    taken.emplace_back(memory_.arena, memory_.arena);
    std::ranges::sort(taken);
    std::vector<std::pair<Bytes, Bytes>> gaps;
    Bytes free = 0;
    for (const auto& [begin, end] : taken) {
      const Bytes from = (free + kPoolUnit - 1) / kPoolUnit * kPoolUnit;
      if (begin > from) gaps.emplace_back(from, begin - from);
      free = std::max(free, end);
    }
    return gaps;
  }

  std::uint32_t copy(Queue queue, TensorId t, std::vector<std::uint32_t> after) {
    const auto index = static_cast<std::uint32_t>(list_.copies.size());
    list_.copies.push_back({queue, places_[t].offset, host_[t],
                            program_.storages[step_.storages[t]].bytes, std::move(after)});
    add(InstructionKind::kCopy, index);
    return index;
  }

  void offload(TensorId t) {
    host_[t] = memory_.slab_offsets[next_offload_++];
    if (stays(t)) return;
    std::vector<std::uint32_t> after;
    if (fetch_[t] != kNone) after.push_back(fetch_[t]);
    offload_[t] = copy(Queue::kToHost, t, std::move(after));
    host_copy_[t] = offload_[t];
  }

  void fetch(TensorId t) {
    allocate(t);
    if (stays(t)) return;
    fetch_[t] = copy(Queue::kToDevice, t, {host_copy_[t]});
  }

  void release(TensorId t) {
    end_life(t);
    await(offload_[t]);
    await(fetch_[t]);
    if (target_.poison && !stays(t)) {
      add(InstructionKind::kPoison, list_.poisons.size());
      list_.poisons.push_back({places_[t].offset, graph_.bytes(t)});
    }
    places_[t] = {};
  }

  const Program& program_;
  const IdVector<NodeId, NodeRecord>& records_;
  const StepGraph& step_;
  const Graph& graph_;
  const Plan& plan_;
  const PlanMemory& memory_;
  const CompileTarget& target_;
  InstructionList list_;
  std::vector<double> scalars_;
  std::size_t now_ = 0;
  std::size_t next_address_ = 0;
  std::size_t next_offload_ = 0;
  IdVector<TensorId, Place> places_;
  IdVector<TensorId, std::uint32_t> fetch_;      // under way, as far as compute knows
  IdVector<TensorId, std::uint32_t> offload_;    // likewise
  std::map<TensorId, std::uint32_t> host_copy_;  // the offload that made it
  IdVector<TensorId, Bytes> host_;               // where it is in the slab
  IdVector<OpId, std::uint32_t> runs_;
  IdVector<OpId, std::int32_t> random_;
  std::map<std::pair<ValueId, c10::StorageImpl*>, at::Tensor> views_;
};

}  // namespace

at::Tensor make_view(const ValueSpec& value, const c10::Storage& storage) {
  const auto key = storage.device().is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), c10::scalarTypeToTypeMeta(value.dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(value.sizes, value.strides, value.offset);
  return tensor;
}

Result<InstructionList> make_instructions(const Recording& recording, const StepGraph& step,
                                          const Plan& plan, const PlanMemory& memory,
                                          const CompileTarget& target) {
  return Compiler(recording, step, plan, memory, target).compile();
}

}  // namespace regen::execute
