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
  kept_.use(recording_->program, list_.bound);
  scalars_.clear();
}

}  // namespace regen::execute
