#include "regen/share/input/feed_mark.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "regen/base/open_file.h"
#include "regen/share/protocol/process_end.h"
#include "regen/share/scheduler/job_table.h"

namespace regen::share {
namespace {

constexpr std::uint64_t kMagic = 0x314b52414d444652;  // "RFDMARK1"
constexpr std::size_t kMostReaders = 200;             // more have the same position anyway

// In one page, and each part written by one call: a kill leaves the old part or the new one.
struct Content {
  std::uint64_t magic;
  std::int64_t epoch;
  std::int64_t index;
  struct Readers {
    std::uint64_t count;
    struct {
      std::int64_t process;
      std::uint64_t start;
    } of[kMostReaders];
  } readers;
};
static_assert(sizeof(Content) <= 4096);

std::string file_of(const std::string& socket) {
  return socket + ".mark";
}

// Nothing where there is no mark, or a damaged one.
std::optional<Content> read_content(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  Content content{};
  if (!file.valid()) return std::nullopt;
  const auto bytes = std::as_writable_bytes(std::span(&content, 1));
  if (read_at(file.number(), bytes, 0) != std::ssize(bytes)) return std::nullopt;
  const bool good = content.magic == kMagic && content.epoch >= 0 && content.index >= 0 &&
                    content.readers.count <= kMostReaders;
  return good ? std::optional(content) : std::nullopt;
}

// Whether this very process lives: not a later one with its number, nor a zombie.
bool lives(std::int64_t process, std::uint64_t start) {
  const Descriptor end = process_descriptor(process);
  pollfd ended{end.number(), POLLIN, 0};
  return end.valid() && ::poll(&ended, 1, 0) == 0 &&
         process_start(process).value_or(start) == start;
}

std::set<std::pair<std::int64_t, std::uint64_t>> living_readers(const Content& content) {
  std::set<std::pair<std::int64_t, std::uint64_t>> living;
  for (std::size_t i = 0; i < content.readers.count; ++i) {
    const auto& [process, start] = content.readers.of[i];
    if (start != 0 && lives(process, start)) living.emplace(process, start);
  }
  return living;
}

}  // namespace

FeedMark::FeedMark(const std::string& socket, Position start) : path_(file_of(socket)) {
  if (const auto before = read_content(path_)) absent_ = living_readers(*before);
  file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const Content content{.magic = kMagic, .epoch = start.epoch, .index = start.index, .readers = {}};
  const auto bytes = std::as_bytes(std::span(&content, 1));
  (void)write_at(file_.number(), bytes.first(offsetof(Content, readers)), 0);
  write_readers();
}

FeedMark::~FeedMark() {
  ::unlink(path_.c_str());
}

void FeedMark::stand_at(Position position) const {
  const std::int64_t both[2] = {position.epoch, position.index};
  (void)write_at(file_.number(), std::as_bytes(std::span(both)), offsetof(Content, epoch));
}

void FeedMark::add_reader(std::int64_t process) {
  const Reader reader(process, process_start(process).value_or(0));
  absent_.erase(reader);
  present_.insert(reader);
  write_readers();
}

void FeedMark::remove_reader(std::int64_t process) {
  const auto found = present_.lower_bound({process, 0});
  if (found == present_.end() || found->first != process) return;
  present_.erase(found);
  write_readers();
}

void FeedMark::write_readers() const {
  Content::Readers readers{};
  const auto put = [&readers](const Reader& reader) {
    if (readers.count == kMostReaders) return;
    readers.of[readers.count++] = {reader.first, reader.second};
  };
  for (const Reader& reader : present_) put(reader);
  for (const Reader& reader : absent_) put(reader);
  const auto bytes = std::as_bytes(std::span(&readers, 1));
  (void)write_at(file_.number(), bytes, offsetof(Content, readers));
}

Position FeedMark::after_crash(const std::string& socket) {
  const auto content = read_content(file_of(socket));
  if (!content || living_readers(*content).empty()) return {};
  return {content->epoch, content->index};
}

}  // namespace regen::share
