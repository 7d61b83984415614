// What a job has on its device and can move out of the way: the arena of the step that is compiled,
// and its packed state.
#pragma once

#include <memory>
#include <mutex>

#include "regen/execute/placement/state_arena.h"
#include "regen/execute/run/executor.h"

namespace regen::session {

// How far the job gets out of the way.
enum class Retreat : std::uint8_t {
  kNothing,  // everything stays where it is
  kArena,    // the step's arena goes to the host
  kState,    // and the packed state
};

// What an attempt to make room has come to.
struct RoomMade {
  Bytes left = 0;  // still on the device; what could not go counts
  Status status;   // why something could not go

  bool ok() const { return status.ok(); }
};

// Any thread may call: an idle job makes room on a thread that listens to the daemon.
class JobMemory {
 public:
  // Of the step that is compiled. `persistent` bytes stay when its arena is spilled.
  void set_arena(execute::Executor* executor, Bytes persistent);
  // When the step goes; another one's arena stays.
  void clear_arena(const execute::Executor* executor);
  // Null: the state does not leave.
  void set_state(std::shared_ptr<execute::StateArena> state);

  // Every part is tried, also after one that could not go; the first error is reported.
  RoomMade make_room(Retreat depth);
  // The state. The step's arena is restored by its next run.
  Status come_back();

 private:
  Status spill_arena(Retreat depth);
  Status move_state(Retreat depth);
  Bytes left_bytes() const;

  std::mutex mutex_;
  execute::Executor* executor_ = nullptr;
  std::shared_ptr<execute::StateArena> state_;
  Bytes persistent_ = 0;
};

}  // namespace regen::session
