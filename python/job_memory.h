// What a job in Python has on its device: the arena of the step that is compiled, and its state if
// that was packed.
#pragma once

#include <memory>
#include <mutex>

#include "regen/execute/placement/state_arena.h"
#include "regen/execute/run/executor.h"
#include "regen/share/client/movable_memory.h"

namespace regen {

// Called from any thread: an idle job makes room on the thread that listens to the daemon.
class JobMemory final : public share::MovableMemory {
 public:
  // The step that is compiled; none when it goes. `persistent` bytes stay when its arena is
  // spilled.
  void set_executor(execute::Executor* executor, Bytes persistent);
  void clear_executor(const execute::Executor* executor);
  // None: the state does not leave.
  void set_state(std::shared_ptr<execute::StateArena> state);

  // A part that cannot go stays, and counts.
  Bytes make_room(share::Depth depth) override;
  // The state; whoever runs the step restores its arena.
  Status come_back() override;

 private:
  std::mutex mutex_;
  execute::Executor* executor_ = nullptr;
  std::shared_ptr<execute::StateArena> state_;
  Bytes persistent_ = 0;
};

}  // namespace regen
