// One operator after the other, each with its memory, its random numbers and its algorithm.
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "regen/execute/device/cpu/work_queue.h"
#include "regen/execute/program/operator_call.h"
#include "regen/execute/run/executor.h"

namespace regen::execute {

// One for each random op and one to return to, all from the start: what they take is then the same
// at every moment, and what others take can be measured.
void Executor::reserve_generators() {
  if (list_.num_random == 0) return;
  generators_.resize(list_.num_random + 1);
  for (GeneratorState& state : generators_) renew(state);
}

void Executor::renew(GeneratorState& state) {
  state = GeneratorState();  // the old one goes first: there is room for one
  state = GeneratorState::current(device_->torch_device());
}

void Executor::run_compute(ComputeInstruction& call, PlacementScope& placement) {
  const GeneratorState* resume = nullptr;
  if (call.random >= 0) {
    GeneratorState& saved = generators_[static_cast<std::size_t>(call.random)];
    if (call.rerun) {
      renew(generators_.back());
      saved.restore();
      resume = &generators_.back();
    } else {
      renew(saved);
    }
  }
  if (!call.external.empty()) take_external(call);
  c10::GradMode::set_enabled(call.forward);
  const double begin = host_timing_ ? now_seconds() : 0;
  try {
    call_operator(call, placement);
    if (host_timing_) {
      host_time_.call_seconds += now_seconds() - begin;
      ++host_time_.calls;
    }
    const bool sized = sizes_in_use_ != kPlannedSizes;
    if (options_.debug || sized || !call.host_results.empty()) {
      const std::vector<at::Tensor> results = take_results(stack_);
      if (sized && !sizes_checked_) check_sized_results(call, results);
      if (sized) settle_results(call, results);
      if (options_.debug && !sized) check_results(call, results);
      take_host_results(call, results);
    }
  } catch (...) {
    stack_.clear();
    placement.finish();
    throw;
  }
  stack_.clear();
  placement.finish();
  if (resume != nullptr) resume->restore();
}

void Executor::call_operator(ComputeInstruction& call, PlacementScope& placement) {
  const std::string& name = recording_->program.nodes[call.node].name;
  stack_.assign(call.arguments.begin(), call.arguments.end());
  if (call.chooses) {
    try {
      placement.serve(call.slots, name, Unforeseen::kRefuse);
      return call.handle.callBoxed(stack_);
    } catch (const std::exception&) {
      // It does not come to the planned algorithm: as any other call, and reported as such.
      stack_.assign(call.arguments.begin(), call.arguments.end());
    }
  }
  placement.serve(call.slots, name);
  call.handle.callBoxed(stack_);
}

void Executor::take_host_results(const ComputeInstruction& call,
                                 const std::vector<at::Tensor>& results) {
  for (const ComputeInstruction::HostResult& host : call.host_results) {
    const c10::Storage& from = results[host.result].storage();
    std::memcpy(list_.bound[host.storage].mutable_data(), from.data(), from.nbytes());
  }
}

// The caller's own memory for results, from torch as for any tensor of the caller.
void Executor::take_external(ComputeInstruction& call) {
  for (const ComputeInstruction::External& external : call.external) {
    const Bytes bytes = call.slots[external.slot].bytes;
    at::Tensor& memory = external_[external.storage];
    memory =
        at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(device_->torch_device()));
    given_[external.storage] = false;
    void* address = memory.mutable_data_ptr();
    call.slots[external.slot].address = address;
    list_.bound[external.storage].set_data_ptr_noswap(c10::DataPtr(address, memory.device()));
  }
}

void Executor::check_results(const ComputeInstruction& call,
                             const std::vector<at::Tensor>& results) const {
  const Program& program = recording_->program;
  const Node& node = program.nodes[call.node];
  const std::size_t expected = call.shortened ? 1 : node.outputs.size();
  for (std::size_t r = 0; r < expected; ++r) {
    if (!node.outputs[r].valid()) continue;
    const ValueSpec& value = program.values[node.outputs[r]];
    const at::Tensor& made = results[r];
    TORCH_CHECK(made.defined() && made.sizes() == c10::IntArrayRef(value.sizes) &&
                    made.strides() == c10::IntArrayRef(value.strides) &&
                    made.scalar_type() == value.dtype,
                describe(program, call.node), ": result ", r, " is not laid out as recorded");
    if (call.shortened) {
      TORCH_CHECK(made.storage().data() == call.slots[0].address, describe(program, call.node),
                  ": its first result is not where the plan puts it");
      continue;
    }
    const auto& allocations = recording_->nodes[call.node].variant(call.choice).allocations;
    for (std::size_t k = 0; k < allocations.size(); ++k) {
      TORCH_CHECK(allocations[k].result != value.storage || !allocations[k].result.valid() ||
                      made.storage().data() == call.slots[k].address,
                  describe(program, call.node), ": result ", r, " is not where the plan puts it");
    }
  }
}

}  // namespace regen::execute
