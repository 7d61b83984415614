// A stretch of device or host memory with one owner, and the physical memory behind it, which may
// be given back to the system and taken again while the address stays:
//
//   address    0x7f..00 |----------------------| reserved from the first to the last day
//   pages               |######################| taken: what is planned at an address lies there
//                       |                      | released: others may have the memory
#pragma once

#include <memory>
#include <utility>

#include "regen/base/result.h"
#include "regen/base/units.h"

namespace regen::execute {

// The physical memory of one block. The end of it ends the address too.
class Pages {
 public:
  virtual ~Pages() = default;
  // Memory for the whole block, with any contents. Refused when the device has no room; nothing has
  // changed then, and it may be tried again.
  virtual Status take() = 0;
  // No queue works on the memory. Refused where memory cannot go while its address stays.
  virtual Status release() = 0;
};

// Given back when it is destroyed. The owner makes sure that no queue still works on it
// (synchronize() first when in doubt).
class MemoryBlock {
 public:
  using Free = void (*)(void* data, Bytes bytes);

  MemoryBlock() = default;
  MemoryBlock(void* data, Bytes bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  // `pages` are taken, and free everything in the end.
  MemoryBlock(void* data, Bytes bytes, std::unique_ptr<Pages> pages)
      : data_(data), bytes_(bytes), pages_(std::move(pages)) {}
  MemoryBlock(MemoryBlock&& other) noexcept { swap(other); }
  MemoryBlock& operator=(MemoryBlock&& other) noexcept {
    MemoryBlock(std::move(other)).swap(*this);
    return *this;
  }
  ~MemoryBlock() {
    if (free_ != nullptr) free_(data_, bytes_);
  }

  void* data() const { return data_; }
  Bytes bytes() const { return bytes_; }
  void* at(Bytes offset) const { return static_cast<char*>(data_) + offset; }

  // False between release_pages() and take_pages(): nothing may touch the memory.
  bool present() const { return present_; }
  // Only of an arena that was allocated as releasable. Both do nothing when it is so already.
  Status release_pages();
  Status take_pages();

 private:
  void swap(MemoryBlock& other) noexcept;

  void* data_ = nullptr;
  Bytes bytes_ = 0;
  Free free_ = nullptr;
  std::unique_ptr<Pages> pages_;
  bool present_ = true;
};

}  // namespace regen::execute
