#include "regen/share/input/feed_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "regen/base/open_file.h"
#include "regen/base/units.h"
#include "regen/share/input/batch_layout.h"

namespace regen::share {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr char kSegmentMagic[8] = {'R', 'G', 'E', 'N', 'F', 'E', 'E', 'D'};
constexpr char kSlotMagic[4] = {'S', 'L', 'O', 'T'};
constexpr int kSizeSeals = F_SEAL_GROW | F_SEAL_SHRINK;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t to) {
  return (bytes + to - 1) / to * to;
}

Error memory_error(const char* what) {
  return limit_reached(std::string("cannot make the memory of a shared input: ") + what + ": " +
                       std::strerror(errno));
}

Error damaged(const std::string& what) {
  return bad_input("damaged shared input: " + what);
}

// Whatever the header says must be true of the file as well.
Status check_header(const SegmentHeader& header, std::uint64_t file_bytes) {
  if (std::memcmp(header.magic, kSegmentMagic, sizeof kSegmentMagic) != 0) {
    return damaged("its memory does not begin with REGENFEED");
  }
  if (header.version != kFeedVersion) {
    return bad_input("the shared input has version " + std::to_string(header.version) +
                     ", expected " + std::to_string(kFeedVersion) +
                     " (a producer of another version of regen?)");
  }
  if (header.slots < 1 || header.slots > kMaxSlots) {
    return damaged("it has " + std::to_string(header.slots) + " slots, expected 1 to " +
                   std::to_string(kMaxSlots));
  }
  if (header.slot_bytes < kPage || header.slot_bytes > kMaxSlotBytes ||
      header.slot_bytes % kPage != 0) {
    return damaged("its slots have " + std::to_string(header.slot_bytes) + " bytes");
  }
  if (file_bytes != kPage + header.slots * header.slot_bytes) {
    return damaged("it has " + std::to_string(file_bytes) + " bytes, expected " +
                   std::to_string(kPage + header.slots * header.slot_bytes));
  }
  return {};
}

}  // namespace

Mapping::~Mapping() {
  ::munmap(memory, bytes);
}

Result<FeedSegment> FeedSegment::create(std::uint32_t slots, std::uint64_t slot_bytes) {
  if (slots < 1 || slots > kMaxSlots) {
    return bad_input("shared input with " + std::to_string(slots) + " slots, expected 1 to " +
                     std::to_string(kMaxSlots));
  }
  if (slot_bytes < 1 || slot_bytes > kMaxSlotBytes) {
    return bad_input("shared input with slots of " + std::to_string(slot_bytes) +
                     " bytes, expected 1 to " + std::to_string(kMaxSlotBytes));
  }
  FeedSegment segment;
  segment.slots_ = slots;
  segment.slot_bytes_ = rounded(slot_bytes, kPage);
  const std::uint64_t bytes = kPage + slots * segment.slot_bytes_;
  segment.descriptor_ = Descriptor(::memfd_create("regen-feed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int file = segment.descriptor();
  if (file < 0) return memory_error("memfd_create");
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) return memory_error("ftruncate");
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return memory_error("mmap");
  segment.mapping_ = std::make_shared<Mapping>(memory, bytes);
  SegmentHeader header{{}, kFeedVersion, slots, segment.slot_bytes_};
  std::memcpy(header.magic, kSegmentMagic, sizeof kSegmentMagic);
  std::memcpy(memory, &header, sizeof header);
  constexpr int kSeals = kSizeSeals | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (::fcntl(file, F_ADD_SEALS, kSeals) != 0) return memory_error("F_ADD_SEALS");
  return segment;
}

Result<char*> FeedSegment::fill(std::uint32_t slot, std::uint64_t serial, std::string_view layout,
                                std::uint64_t data_bytes) {
  const std::uint64_t data_offset = rounded(kSlotHeadBytes + layout.size(), kTensorAlignment);
  if (layout.size() > kMaxLayoutBytes || data_offset > slot_bytes_ ||
      data_bytes > slot_bytes_ - data_offset) {
    return limit_reached("the batch takes " +
                         format_grouped(static_cast<Bytes>(data_offset + data_bytes)) +
                         " bytes, a slot has " + format_grouped(static_cast<Bytes>(slot_bytes_)) +
                         ", expected a larger slot_bytes");
  }
  char* base = mapping_->memory + kPage + slot * slot_bytes_;
  SlotHead head{{}, static_cast<std::uint32_t>(layout.size()), serial, data_offset, data_bytes};
  std::memcpy(head.magic, kSlotMagic, sizeof kSlotMagic);
  std::memcpy(base, &head, sizeof head);
  std::memcpy(base + kSlotHeadBytes, layout.data(), layout.size());
  return base + data_offset;
}

Result<FeedView> FeedView::map(const Descriptor& descriptor) {
  const int file = descriptor.number();
  struct stat facts {};
  if (!descriptor.valid() || ::fstat(file, &facts) != 0) {
    return damaged("the producer sent no memory with its answer");
  }
  // A file that could shrink would kill the processes that read it.
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return damaged("the size of its memory is not sealed");
  }
  SegmentHeader header{};
  const auto header_bytes = std::as_writable_bytes(std::span(&header, 1));
  if (read_at(file, header_bytes, 0) != std::ssize(header_bytes)) {
    return damaged("it has " + std::to_string(facts.st_size) + " bytes, expected a header");
  }
  REGEN_TRY(check_header(header, static_cast<std::uint64_t>(facts.st_size)));
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) return memory_error("mmap");
  FeedView view;
  view.mapping_ = std::make_shared<Mapping>(memory, bytes);
  view.slots_ = header.slots;
  view.slot_bytes_ = header.slot_bytes;
  return view;
}

Result<FeedView::Batch> FeedView::batch(std::uint32_t slot, std::uint64_t serial) const {
  if (slot >= slots_) {
    return damaged("a batch is said to be in slot " + std::to_string(slot) + " of " +
                   std::to_string(slots_));
  }
  char* base = mapping_->memory + kPage + slot * slot_bytes_;
  SlotHead head{};
  std::memcpy(&head, base, sizeof head);
  if (std::memcmp(head.magic, kSlotMagic, sizeof kSlotMagic) != 0 || head.serial != serial) {
    return damaged("slot " + std::to_string(slot) + " has batch " + std::to_string(head.serial) +
                   ", expected " + std::to_string(serial));
  }
  const std::uint64_t room = slot_bytes_ - kSlotHeadBytes;
  const bool good = head.layout_bytes <= room && head.layout_bytes <= kMaxLayoutBytes &&
                    head.data_offset % kTensorAlignment == 0 && head.data_offset <= slot_bytes_ &&
                    head.data_offset >= kSlotHeadBytes + head.layout_bytes &&
                    head.data_bytes <= slot_bytes_ - head.data_offset;
  if (!good)
    return damaged("slot " + std::to_string(slot) + " has a head that points outside of it");
  return Batch{.layout = std::string(base + kSlotHeadBytes, head.layout_bytes),
               .data = base + head.data_offset,
               .data_bytes = head.data_bytes,
               .data_offset = head.data_offset};
}

void FeedView::restore(const Batch& batch) const {
  const auto address = reinterpret_cast<std::uintptr_t>(batch.data);
  const std::uintptr_t first = address / kPage * kPage;
  const std::uintptr_t end = rounded(address + batch.data_bytes, kPage);
  void* pages = reinterpret_cast<void*>(first);
  if (::madvise(pages, end - first, MADV_DONTNEED) == 0) return;
  // Pages that the process has locked in memory do not go.
  ::munlock(pages, end - first);
  ::madvise(pages, end - first, MADV_DONTNEED);
}

}  // namespace regen::share
