// Results in a step's arena that the caller has as tensors of its own until the next step begins: gradients, which most
// training loops drop before the next forward pass.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "regen/execute/device/memory_block.h"

namespace regen::execute {

class LentResults {
 public:
  // The memory at an offset of the arena, which stays for as long as a tensor over it does.
  c10::Storage lend(const std::shared_ptr<MemoryBlock>& arena, Bytes offset, Bytes bytes,
                    c10::Device device);

  // Those that the caller still has, in the order of their addresses.
  std::vector<c10::Storage> held() const;
  Bytes held_bytes() const;
  // Where these lie in the arena: begin and end.
  std::vector<std::pair<Bytes, Bytes>> held_ranges() const;

  // A new step begins: none is held.
  void clear() { lent_.clear(); }

 private:
  struct Lent {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Bytes bytes = 0;
  };

  std::map<Bytes, Lent> lent_;  // by offset
};

// Storages whose contents are elsewhere for a while.
struct MovedContents {
  c10::Storage storage;
  at::Tensor contents;  // as bytes
};

// Every storage has memory of torch's own afterwards, with the same contents: all tensors over it follow.
void move_to_own_memory(const std::vector<c10::Storage>& storages);
// The same in two halves, where the device has no room for both: the memory that they had is free in between.
std::vector<MovedContents> move_to_host(const std::vector<c10::Storage>& storages);
void move_back(const std::vector<MovedContents>& moved);

}  // namespace regen::execute
