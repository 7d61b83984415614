// Every allocation that an operator makes on the calling thread, at a chosen address.
//
// An operator makes the same allocations in the same order every time (for given shapes). So a
// RecordingScope writes them down once, the planner gives each an address, and a PlacementScope
// hands the addresses out: the k-th allocation of a call gets slots[k].
//
//   recorded   conv backward:  [0] 400 B grad_weight   [1] 64 B workspace   [2] 900 B grad_input
//   planned    slots:          {400, a}                {64, b}              {900, c}
//
// Both put an allocator in front of torch's own while they are entered. It acts on the thread of
// the scope, on the scope's device, between begin and end of one operator; all else is passed on
// unchanged, and so are the allocations of at::parallel_for's other threads. A scope is entered
// and left on one thread, one at a time there; on CUDA that is the thread of ExecutionDevice::run.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regen/base/result.h"
#include "regen/base/units.h"
#include "regen/execute/placement/reserve.h"

namespace regen::execute {

// An allocation of exactly `bytes` bytes, or of `bytes` at most, goes to `address`.
struct PlacedSlot {
  Bytes bytes = 0;
  void* address = nullptr;
  bool at_most = false;
  // It lies over what the call reads: only the request whose turn it is may have it.
  bool in_turn = false;
  // A stretch for requests that no other slot is for, first fit: of an island, whose requests depend on
  // values. A call may have several.
  bool pool = false;
};

// Where reality was not as recorded, summed up for each label.
struct Deviation {
  std::string label;
  std::size_t unforeseen = 0;  // allocations served from the reserve
  Bytes unforeseen_bytes = 0;
  std::size_t unasked = 0;  // slots that no allocation asked for

  bool operator==(const Deviation&) const = default;
};

// What becomes of a request that is not the next recorded one.
enum class Unforeseen : std::uint8_t {
  // Another slot of exactly this size serves it, else the reserve.
  kReserve,
  // It is refused: an operator that answers by another algorithm (a convolution of cuDNN) goes on
  // until it comes to the recorded one, whichever it remembered.
  kRefuse,
};

class PlacementHook;
class RecordingHook;

// For a whole step. Freeing what was placed does nothing: the plan says when memory is free.
class PlacementScope {
 public:
  // `reserve` outlives the scope. `beside`: bytes of the budget that are not in use; when the
  // reserve is full, torch's own allocator may give so many. An error if a scope is entered on this
  // thread already, or torch has no such device.
  static Result<PlacementScope> enter(c10::Device device, Reserve& reserve, Bytes beside = 0);
  PlacementScope(PlacementScope&&) noexcept;
  PlacementScope& operator=(PlacementScope&&) = delete;
  ~PlacementScope();

  // The operator called next makes these allocations. What it asks for beyond them, or while an
  // earlier allocation of the call still lives at that address, comes from the reserve, then from
  // the bytes beside; when these are used up, c10::OutOfMemoryError is thrown (cuDNN then tries
  // another algorithm), and nothing is ever taken from elsewhere. Slots of 0 bytes stand for
  // requests of 0 bytes and matter only where others are refused. The first two arguments are kept
  // by reference until finish(); serve() again instead of that forgets a call that failed.
  void serve(std::span<const PlacedSlot> slots, std::string_view label,
             Unforeseen unforeseen = Unforeseen::kReserve);
  // The operator has returned or thrown: passes on again. Returns how many slots were not taken.
  std::size_t finish();
  // Of the call that was served last, until the next one: the requests that no slot was for, whether
  // they were served or not, and whether one was refused for lack of bytes.
  const std::vector<Bytes>& unforeseen() const;
  bool refused() const;
  // What the call asked for with outgrow().
  Bytes outgrown() const;

  // In the order of their first appearance; empty when all was as recorded.
  const std::vector<Deviation>& deviations() const;

 private:
  explicit PlacementScope(std::unique_ptr<PlacementHook> hook);
  std::unique_ptr<PlacementHook> hook_;
};

// Bytes of the call under way on this thread that are not freed yet, its results among them, but for
// blocks of 16 bytes at most: Python numbers, which autograd's graph holds. 0 outside of calls.
Bytes live_bytes_of_call();
// Called by an island that a scope serves on this thread, before it fails: it has to hold `bytes` for
// its backward pass, and the result for that is too small.
void outgrow(Bytes bytes);

// One allocation of a recorded call. Births and deaths are counted together: the n-th event of
// the call has moment n.
struct RecordedAllocation {
  static constexpr std::uint32_t kAlive = std::numeric_limits<std::uint32_t>::max();

  Bytes bytes = 0;
  std::uint32_t birth = 0;
  std::uint32_t death = kAlive;  // an output, unless the operator keeps it
  const void* address = nullptr;
};

struct RecordingRules {
  bool empty_requests = false;  // those of 0 bytes are recorded too, as freed at once
  // Requests above it are refused, but for those of these sizes in this order: the results.
  std::optional<Bytes> cap;
  std::vector<Bytes> results;
};

// Observes only, unless there is a cap: every allocation is torch's own.
class RecordingScope {
 public:
  static Result<RecordingScope> enter(c10::Device device);
  RecordingScope(RecordingScope&&) noexcept;
  RecordingScope& operator=(RecordingScope&&) = delete;
  ~RecordingScope();

  void start(RecordingRules rules = {});
  std::vector<RecordedAllocation> stop();

 private:
  explicit RecordingScope(std::unique_ptr<RecordingHook> hook);
  std::unique_ptr<RecordingHook> hook_;
};

// The allocation that holds a tensor's memory when the call has ended, or -1: of several at one
// address the living one.
int find_allocation(std::span<const RecordedAllocation> recorded, const void* address);

}  // namespace regen::execute
