// A step for other sizes than those of its plan: other instructions over the same arena.
#include <algorithm>

#include "regen/execute/program/operator_call.h"
#include "regen/execute/run/executor.h"

namespace regen::execute {
namespace {

// Calls in all instruction lists that are kept, each of some kilobytes of host memory.
constexpr std::size_t kMostCalls = 200'000;
constexpr std::size_t kLeastKept = 8;

}  // namespace

Status Executor::add_sizes(std::uint64_t number, const StepSizes& sizes) {
  if (number == kPlannedSizes || knows_sizes(number)) {
    return bad_input("sizes number " + std::to_string(number) + " are there, expected new ones");
  }
  use_sizes(kPlannedSizes);
  REGEN_ASSIGN(Recording recording, with_sizes(*recording_, sizes));
  const CompileTarget target{device_->torch_device(), static_cast<std::byte*>(arena_->data()),
                             options_.debug};
  OtherSizes made;
  made.recording = std::make_shared<const Recording>(std::move(recording));
  REGEN_ASSIGN(made.list, make_instructions(*made.recording, *step_, plan_, memory_, target));
  if (made.list.instructions.size() != list_.instructions.size()) {
    return bad_input("sizes number " + std::to_string(number) + " take " +
                     std::to_string(made.list.instructions.size()) + " instructions, expected " +
                     std::to_string(list_.instructions.size()));
  }
  made.last_use = ++uses_;
  other_sizes_.emplace(number, std::move(made));
  forget_least_used_sizes();
  return {};
}

void Executor::forget_least_used_sizes() {
  const std::size_t most =
      std::max(kLeastKept, kMostCalls / std::max<std::size_t>(1, list_.computes.size()));
  while (other_sizes_.size() > most) {
    auto oldest = other_sizes_.end();
    for (auto it = other_sizes_.begin(); it != other_sizes_.end(); ++it) {
      if (it->first == kPlannedSizes) continue;
      if (oldest == other_sizes_.end() || it->second.last_use < oldest->second.last_use)
        oldest = it;
    }
    other_sizes_.erase(oldest);
  }
}

void Executor::use_sizes(std::uint64_t number) {
  if (number == sizes_in_use_) return;
  const auto found = other_sizes_.find(number);
  TORCH_CHECK(found != other_sizes_.end(), "regen: sizes number ", number,
              " are not there, expected add_sizes() first");
  forget_repeated();
  forget();
  OtherSizes next = std::move(found->second);
  other_sizes_.erase(found);
  other_sizes_[sizes_in_use_] = {std::move(recording_), std::move(list_), sizes_checked_, ++uses_};
  recording_ = std::move(next.recording);
  list_ = std::move(next.list);
  sizes_checked_ = next.checked;
  sizes_in_use_ = number;
  scalars_.clear();
}

// In the first step of these sizes, or of measurements that come from a file: every result looks as
// the recording says.
void Executor::check_first_results(const ComputeInstruction& call,
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
    misrecorded_ = sizes_in_use_ == kPlannedSizes;
    const c10::IntArrayRef none;
    TORCH_CHECK(false, "regen: ", describe(program, call.node), ": result ", r, " of shape ",
                there ? made.sizes() : none, " and strides ", there ? made.strides() : none,
                ", expected ", c10::IntArrayRef(value.sizes), " and ",
                c10::IntArrayRef(value.strides), " as its ",
                misrecorded_ ? "measurement" : "capture", " says");
  }
}

}  // namespace regen::execute
