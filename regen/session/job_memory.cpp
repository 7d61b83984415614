#include "regen/session/job_memory.h"

#include <algorithm>
#include <utility>

namespace regen::session {

void JobMemory::set_arena(execute::Executor* executor, Bytes persistent) {
  const std::lock_guard lock(mutex_);
  executor_ = executor;
  persistent_ = persistent;
}

void JobMemory::clear_arena(const execute::Executor* executor) {
  const std::lock_guard lock(mutex_);
  if (executor_ == executor) executor_ = nullptr;
}

void JobMemory::set_state(std::shared_ptr<execute::StateArena> state) {
  const std::lock_guard lock(mutex_);
  state_ = std::move(state);
}

RoomMade JobMemory::make_room(Retreat depth) {
  const std::lock_guard lock(mutex_);
  const Status arena = spill_arena(depth);
  const Status state = move_state(depth);
  return {left_bytes(), arena.ok() ? state : arena};
}

Status JobMemory::spill_arena(Retreat depth) {
  if (executor_ == nullptr || depth < Retreat::kArena) return {};
  REGEN_TRY(executor_->spill());
  return {};
}

Status JobMemory::move_state(Retreat depth) {
  if (state_ == nullptr || depth < Retreat::kState) return {};
  REGEN_TRY(state_->leave());
  return {};
}

Bytes JobMemory::left_bytes() const {
  Bytes left = persistent_;
  if (executor_ != nullptr && !executor_->spilled()) left += executor_->arena_bytes();
  const bool away = state_ != nullptr && state_->away();
  return away ? std::max<Bytes>(0, left - state_->bytes()) : left;
}

Status JobMemory::come_back() {
  const std::lock_guard lock(mutex_);
  return state_ == nullptr ? Status() : state_->come_back();
}

}  // namespace regen::session
