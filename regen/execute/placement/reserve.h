// Memory inside the budget for allocations that no plan foresaw: first fit in a given stretch.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "regen/base/units.h"

namespace regen::execute {

// Lives as long as the memory under it, which is longer than one step: a tensor that was served
// from here may outlive the step. Any thread may free.
class Reserve {
 public:
  Reserve() = default;
  // Of `bytes` bytes from `begin` on, which the caller owns; blocks start at multiples of
  // `alignment` (a power of two).
  Reserve(void* begin, Bytes bytes, Bytes alignment);
  ~Reserve();
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

  // The lowest gap that is large enough, or null.
  void* take(Bytes bytes);

  Bytes bytes() const { return bytes_; }
  // Of blocks that were not freed yet: where they begin and end, from the begin of the stretch.
  std::vector<std::pair<Bytes, Bytes>> live_ranges() const;
  Bytes live_bytes() const;  // of blocks that were not freed yet
  std::size_t live_blocks() const;
  Bytes peak_bytes() const;  // how much of the stretch, from its begin, was ever touched

  // Frees what any reserve's take() gave. False if the address is in no reserve; of a reserve
  // that is gone nothing is left to free. `release` is the same in the form of a deleter.
  static bool give(void* address);
  static void release(void* address) { give(address); }

  // Nothing is taken from it any more: it goes with its last block, and lets go of the memory under it then.
  static void leave(std::unique_ptr<Reserve> reserve, std::shared_ptr<void> memory);

 private:
  struct Block {
    Bytes begin = 0;
    Bytes end = 0;
  };

  bool contains(const void* address) const;
  // Whether a block begins there, which is free now.
  bool give_block(const void* address);

  char* begin_ = nullptr;
  Bytes bytes_ = 0;
  Bytes alignment_ = 1;
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;  // in order of their addresses
  Bytes peak_ = 0;
};

}  // namespace regen::execute
