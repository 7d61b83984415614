// The persistent state of a job (parameters, buffers, what the optimizer keeps) in one arena, so
// that it can leave the device and come back as one packed copy.
//
//   storages   [weight .......][bias][momentum ....][momentum]     each from torch, anywhere
//   arena      |weight .......|bias|momentum ....|momentum| one block; each at a multiple of 512
//   image      |...... the arena, byte for byte ..........|step|step| and what stays on the host
//
// Tensors keep their identity: only where their storages' memory lies changes. Storages that
// tensors share stay shared. While the state is away its tensors have no memory, and every operator
// refuses them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "regen/execute/device/device.h"
#include "regen/execute/placement/packed_copy.h"

namespace regen::execute {

class StateArena {
 public:
  // Takes the memory of `tensors`, all on `device`, into one arena there; for a moment both exist.
  // `on_host` are tensors that stay on the host wherever the state goes (step counts of an
  // optimizer); they are part of images only.
  static Result<std::unique_ptr<StateArena>> pack(std::vector<at::Tensor> tensors,
                                                  std::vector<at::Tensor> on_host,
                                                  std::shared_ptr<ExecutionDevice> device);
  // Tensors keep the arena alive; those of a state that is away have lost their contents.
  ~StateArena();
  StateArena(const StateArena&) = delete;
  StateArena& operator=(const StateArena&) = delete;

  // To pinned host memory, and the arena's pages back to the device. Returns the bytes that the
  // device has again. When it fails, nothing has changed.
  Result<Bytes> leave();
  // An error of code kLimit: there is no room now; it may be tried again.
  Status come_back();
  bool away() const { return !arena_->present(); }

  // Into an arena of another device (or a new one of the same). Tensors are then on that device;
  // views that the arena does not know of stay behind. When it fails, nothing has changed.
  Status move_to(std::shared_ptr<ExecutionDevice> device);

  // These tensors instead of those it was made with, some of which may have been replaced (by a
  // loaded checkpoint): takes the contents of the new ones. False if they have other sizes and do
  // not fit in; nothing has changed then.
  Result<bool> adopt(std::vector<at::Tensor> tensors, std::vector<at::Tensor> on_host);

  // The packed state in host memory. From image() until the next call of any other method.
  Result<std::span<const std::byte>> image();
  // The same memory, to be filled with an image, and then put in place of the state's contents. If
  // the state is away it stays so, and comes back with the new contents.
  Result<std::span<std::byte>> image_room();
  Status take_image();

  const std::shared_ptr<ExecutionDevice>& device() const { return device_; }
  Bytes bytes() const { return arena_->bytes(); }  // on the device, unless away
  Bytes image_bytes() const { return layout_.image_bytes; }

  // How long the parts of the last leave() or come_back() took: the copy, and the pages' release or
  // taking.
  struct Seconds {
    double copy = 0;
    double pages = 0;
  };
  const Seconds& last_seconds() const { return seconds_; }

  // On a CUDA device, of all such arenas that are not away: torch's statistics do not know of them.
  static Bytes bytes_on(c10::Device device);

 private:
  struct Slot {
    c10::Storage storage;
    MemoryRange place;  // in the arena, or for host tensors in the image
  };
  struct Layout {
    std::vector<Slot> slots;
    std::vector<Slot> host_slots;
    Bytes arena_bytes = 0;
    Bytes image_bytes = 0;
  };

  StateArena() = default;
  static Result<Layout> make_layout(const std::vector<at::Tensor>& tensors,
                                    const std::vector<at::Tensor>& on_host,
                                    const ExecutionDevice& device);
  Status check_in_place() const;
  void* address(const Slot& slot) const { return arena_->at(slot.place.offset); }
  void point_to_arena(const Slot& slot) const;
  void fill_from_storages(const MemoryBlock& arena, const Layout& layout) const;
  bool takes_slots_of(const Layout& layout) const;
  void vacate(const Slot& slot) const;
  Status take_host_memory();
  Status copy_out();
  Status copy_in(ExecutionDevice& device, const MemoryBlock& arena) const;
  void move_tensors();
  std::vector<MemoryRange> whole_arena() const { return {{0, layout_.arena_bytes}}; }
  void count(Bytes difference) const;

  std::shared_ptr<ExecutionDevice> device_;
  std::vector<at::Tensor> tensors_;
  std::vector<at::Tensor> on_host_;
  Layout layout_;
  std::shared_ptr<MemoryBlock> arena_;  // the tensors own it, too
  MemoryBlock host_;                    // for one image; taken at first need and kept
  Seconds seconds_;
};

}  // namespace regen::execute
