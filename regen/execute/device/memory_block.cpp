#include "regen/execute/device/memory_block.h"

namespace regen::execute {

Status MemoryBlock::release_pages() {
  if (!present_) return {};
  if (!pages_) {
    return bad_input("memory of " + format_bytes(bytes_) +
                     " cannot be given back while its address stays, expected a releasable arena");
  }
  REGEN_TRY(pages_->release());
  present_ = false;
  return {};
}

Status MemoryBlock::take_pages() {
  if (present_) return {};
  REGEN_TRY(pages_->take());
  present_ = true;
  return {};
}

void MemoryBlock::swap(MemoryBlock& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(free_, other.free_);
  std::swap(pages_, other.pages_);
  std::swap(present_, other.present_);
}

}  // namespace regen::execute
