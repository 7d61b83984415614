#include "python/job_memory.h"

#include <algorithm>
#include <utility>

namespace regen {

void JobMemory::set_executor(execute::Executor* executor, Bytes persistent) {
  const std::lock_guard lock(mutex_);
  executor_ = executor;
  persistent_ = persistent;
}

void JobMemory::clear_executor(const execute::Executor* executor) {
  const std::lock_guard lock(mutex_);
  if (executor_ == executor) executor_ = nullptr;
}

void JobMemory::set_state(std::shared_ptr<execute::StateArena> state) {
  const std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

Bytes JobMemory::make_room(share::Depth depth) {
  const std::lock_guard lock(mutex_);
  Bytes left = persistent_;
  if (executor_ != nullptr && depth >= share::Depth::kSpill) {
    static_cast<void>(executor_->spill());
  }
  if (executor_ != nullptr && !executor_->spilled()) left += executor_->arena_bytes();
  if (state_ == nullptr) return left;
  if (depth == share::Depth::kLeave) static_cast<void>(state_->leave());
  return state_->away() ? std::max<Bytes>(0, left - state_->bytes()) : left;
}

Status JobMemory::come_back() {
  const std::lock_guard lock(mutex_);
  return state_ == nullptr ? Status() : state_->come_back();
}

}  // namespace regen
