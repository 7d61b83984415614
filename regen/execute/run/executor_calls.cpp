// One operator after the other, each with its memory, its random numbers and its algorithm.
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>

#include "regen/execute/device/cpu/work_queue.h"
#include "regen/execute/device/quietly.h"
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

// The generators as they were before the step drew from them.
void Executor::undo_draws() {
  if (first_drawn_ >= 0) generators_[static_cast<std::size_t>(first_drawn_)].restore();
  first_drawn_ = -1;
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
      if (first_drawn_ < 0) first_drawn_ = call.random;
    }
  }
  c10::GradMode::set_enabled(call.forward);
  const double begin = host_timing_ ? now_seconds() : 0;
  try {
    if (!call.external.empty()) take_external(call);
    call_operator(call, placement);
    if (host_timing_) {
      host_time_.call_seconds += now_seconds() - begin;
      ++host_time_.calls;
    }
    const bool unchecked = !sizes_checked_;
    const bool in_place = results_in_place(call);
    if (options_.debug || unchecked || !in_place || !call.host_results.empty()) {
      const std::vector<at::Tensor> results = take_results(stack_);
      if (unchecked || (options_.debug && in_place)) check_layouts(call, results);
      if (!in_place) {
        placement.finish();
        move_results(call, results);
      } else if (options_.debug && sizes_in_use_ == kPlannedSizes) {
        check_places(call, results);
      }
      take_host_results(call, results);
    }
  } catch (...) {
    stack_.clear();
    placement.finish();
    if (placement.refused()) {
      shortage_ = Shortage{call.node, placement.unforeseen(), placement.outgrown()};
    }
    // The numbers that a second run drew again are not those that come next.
    if (resume != nullptr) quietly(Lost::kDrop, [&] { resume->restore(); });
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
    c10::Storage& to = list_.bound[host.storage];
    TORCH_CHECK(from.nbytes() <= to.nbytes(), describe(recording_->program, call.node), ": result ",
                host.result, " has ", from.nbytes(), " bytes on the host, recorded as ",
                to.nbytes());
    std::memcpy(to.mutable_data(), from.data(), from.nbytes());
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

// Of the call whose results are on the stack.
bool Executor::results_in_place(const ComputeInstruction& call) const {
  auto next = call.placed.begin();
  std::size_t number = 0;
  const auto in_place = [&](const at::Tensor& result) {
    for (; next != call.placed.end() && next->result == number; ++next) {
      if (result.defined() && result.storage().data() != call.slots[next->slot].address)
        return false;
    }
    ++number;
    return true;
  };
  for (const c10::IValue& value : stack_) {
    if (value.isTensor()) {
      if (!in_place(value.toTensor())) return false;
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        if (!in_place(tensor)) return false;
      }
    } else {
      ++number;
    }
  }
  return true;
}

// After a call that allocated in another way than recorded: a result that lies elsewhere is copied to
// its planned place, so that whatever reads it finds it there.
void Executor::move_results(const ComputeInstruction& call,
                            const std::vector<at::Tensor>& results) const {
  const Program& program = recording_->program;
  // A result may lie in another one's place.
  std::vector<std::pair<at::Tensor, at::Tensor>> moves;
  for (const ComputeInstruction::PlacedResult& placed : call.placed) {
    const ValueSpec& value = program.values[program.nodes[call.node].outputs[placed.result]];
    const PlacedSlot& slot = call.slots[placed.slot];
    const at::Tensor& result = results[placed.result];
    if (!result.defined() || result.storage().data() == slot.address) continue;
    TORCH_CHECK(
        result.sizes() == c10::IntArrayRef(value.sizes) && result.scalar_type() == value.dtype,
        describe(program, call.node), ": result ", placed.result, " is ", result.scalar_type(), " ",
        result.sizes(), ", recorded as ", value.dtype, " ", c10::IntArrayRef(value.sizes));
    const c10::Storage place(c10::Storage::use_byte_size_t(), static_cast<std::size_t>(slot.bytes),
                             c10::DataPtr(slot.address, device_->torch_device()), nullptr, false);
    moves.emplace_back(make_view(value, place), result);
  }
  for (auto& [to, from] : moves) {
    const void* lies = from.storage().data();
    if (std::ranges::any_of(
            moves, [lies](const auto& other) { return other.first.storage().data() == lies; }))
      from = from.clone();
  }
  for (const auto& [to, from] : moves) to.copy_(from);
}

// Also in the first step of measurements that come from a file.
void Executor::check_layouts(const ComputeInstruction& call,
                             const std::vector<at::Tensor>& results) {
  const Program& program = recording_->program;
  const Node& node = program.nodes[call.node];
  const std::size_t expected = call.shortened ? 1 : node.outputs.size();
  for (std::size_t r = 0; r < expected; ++r) {
    if (!node.outputs[r].valid()) continue;
    const ValueSpec& value = program.values[node.outputs[r]];
    const bool there = r < results.size() && results[r].defined();
    const at::Tensor made = there ? results[r] : at::Tensor();
    if (there && made.sizes() == c10::IntArrayRef(value.sizes) &&
        made.strides() == c10::IntArrayRef(value.strides) && made.scalar_type() == value.dtype &&
        made.storage_offset() == value.offset) {
      continue;
    }
    misrecorded_ = recording_->remembered && sizes_in_use_ == kPlannedSizes;
    believed_a_lie_ |= misrecorded_;
    const c10::IntArrayRef none;
    TORCH_CHECK(false, "regen: ", describe(program, call.node), ": result ", r, " of shape ",
                there ? made.sizes() : none, " and strides ", there ? made.strides() : none,
                ", expected ", c10::IntArrayRef(value.sizes), " and ",
                c10::IntArrayRef(value.strides), " as its ",
                misrecorded_ ? "measurement" : "capture", " says");
  }
}

void Executor::check_places(const ComputeInstruction& call,
                            const std::vector<at::Tensor>& results) const {
  const Program& program = recording_->program;
  const Node& node = program.nodes[call.node];
  if (call.shortened) {
    TORCH_CHECK(results[0].storage().data() == call.slots[0].address, describe(program, call.node),
                ": its first result is not where the plan puts it");
    return;
  }
  const auto& allocations = recording_->nodes[call.node].variant(call.choice).allocations;
  for (std::size_t r = 0; r < node.outputs.size(); ++r) {
    if (!node.outputs[r].valid()) continue;
    const StorageId storage = program.values[node.outputs[r]].storage;
    for (std::size_t k = 0; k < allocations.size(); ++k) {
      TORCH_CHECK(allocations[k].result != storage || !allocations[k].result.valid() ||
                      results[r].storage().data() == call.slots[k].address,
                  describe(program, call.node), ": result ", r, " is not where the plan puts it");
    }
  }
}

}  // namespace regen::execute
