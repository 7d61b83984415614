// The memory of a shared input: a header and a fixed number of slots of one size.
//
//   0       4096            4096 + slot_bytes
//   header | slot 0        | slot 1 | ...        all in one memfd, nothing on a disk
//            head, layout, data
//
// The producer maps it for writing, then seals it: no other process can write to it or resize it.
// Consumers map it privately, so that a consumer that changes a batch in place changes a copy of
// its own. The contents of the memory are not trusted: sizes are compared with the file's, and
// heads are copied before they are checked.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "regen/base/result.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

inline constexpr std::uint32_t kFeedVersion = 2;
inline constexpr std::uint32_t kMaxSlots = 4096;
inline constexpr std::uint64_t kMaxSlotBytes = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kSlotHeadBytes = 64;

struct SegmentHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t slots;
  std::uint64_t slot_bytes;
};

struct SlotHead {
  char magic[4];
  std::uint32_t layout_bytes;
  std::uint64_t serial;
  std::uint64_t data_offset;  // from the start of the slot
  std::uint64_t data_bytes;
};
static_assert(sizeof(SlotHead) <= kSlotHeadBytes);

// A mapping that goes away with its last owner.
struct Mapping {
  Mapping(void* at, std::size_t size) : memory(static_cast<char*>(at)), bytes(size) {}
  Mapping(const Mapping&) = delete;
  ~Mapping();
  char* memory;
  std::size_t bytes;
};

// The producer's side.
class FeedSegment {
 public:
  // slot_bytes is rounded up to whole pages.
  static Result<FeedSegment> create(std::uint32_t slots, std::uint64_t slot_bytes);

  int descriptor() const { return descriptor_.number(); }
  std::uint32_t slots() const { return slots_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }

  // Writes the head and the layout of a batch; returns where its data goes. An error when the slot
  // is too small for it.
  Result<char*> fill(std::uint32_t slot, std::uint64_t serial, std::string_view layout,
                     std::uint64_t data_bytes);

 private:
  FeedSegment() = default;

  Descriptor descriptor_;
  std::shared_ptr<Mapping> mapping_;
  std::uint32_t slots_ = 0;
  std::uint64_t slot_bytes_ = 0;
};

// The consumer's side.
class FeedView {
 public:
  struct Batch {
    std::string layout;
    char* data = nullptr;  // a private copy as soon as it is written to
    std::uint64_t data_bytes = 0;
    std::uint64_t data_offset = 0;
  };

  FeedView() = default;
  static Result<FeedView> map(const Descriptor& descriptor);

  Result<Batch> batch(std::uint32_t slot, std::uint64_t serial) const;
  // Forgets what was written to the batch in place.
  void restore(const Batch& batch) const;

  std::uint32_t slots() const { return slots_; }
  std::uint64_t slot_bytes() const { return slot_bytes_; }

 private:
  std::shared_ptr<Mapping> mapping_;
  std::uint32_t slots_ = 0;
  std::uint64_t slot_bytes_ = 0;
};

}  // namespace regen::share
