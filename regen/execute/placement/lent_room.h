// The free part of an arena between two steps, as memory for what one thread of the caller asks torch for: the scratch
// of an optimizer. Plain PyTorch uses the memory of activations for it too.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "regen/base/result.h"
#include "regen/execute/device/memory_block.h"
#include "regen/execute/placement/reserve.h"

namespace regen::execute {

// Smaller requests go to torch: it keeps them in pages of their own, and little is gained.
inline constexpr Bytes kLeastLent = Bytes{1} << 20;
inline constexpr Bytes kLeastLentOnCpu = Bytes{1} << 12;

// Blocks that are not freed when the room goes keep the arena until they are.
class LentRoom {
 public:
  using Ranges = std::vector<std::pair<Bytes, Bytes>>;

  // Serves this thread's requests from the free ranges of the arena (begin and end), first fit, as far as they have
  // room; all else is torch's as before. What it asks for on another stream than the present one is torch's too.
  // An error where this thread is inside a step.
  static Result<std::shared_ptr<LentRoom>> open(std::shared_ptr<MemoryBlock> arena,
                                                const Ranges& free, c10::Device device,
                                                Bytes alignment);
  ~LentRoom();
  LentRoom(const LentRoom&) = delete;
  LentRoom& operator=(const LentRoom&) = delete;

  // Serves no more. On any thread.
  void close();

  Bytes held_bytes() const;
  bool holds(const void* address) const;

 private:
  friend class LentRoomHook;
  LentRoom(std::shared_ptr<MemoryBlock> arena, const Ranges& free, c10::Device device,
           Bytes alignment);
  void* take(Bytes bytes);

  std::shared_ptr<MemoryBlock> arena_;
  c10::Device device_;
  c10::Stream stream_;
  Bytes least_;
  std::vector<std::unique_ptr<Reserve>> ranges_;
  std::atomic<bool> open_{true};
};

}  // namespace regen::execute
