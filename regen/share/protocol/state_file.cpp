#include "regen/share/protocol/state_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <vector>

#include "regen/base/open_file.h"
#include "regen/base/text.h"

namespace regen::share {
namespace {

constexpr Bytes kBlock = 4096;
constexpr std::uint32_t kVersion = 1;
constexpr char kMagic[8] = {'R', 'G', 'S', 'T', 'A', 'T', 'E', '\n'};

struct Head {
  char magic[8] = {};
  std::uint32_t version = 0;
  std::uint32_t block = 0;
  std::int64_t capacity = 0;
  std::uint64_t check = 0;
};

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

// Of a header without its last field, which holds it.
template <typename T>
std::uint64_t check_of(const T& header) {
  Checksum sum;
  sum.add(bytes_of(header).first(sizeof(T) - sizeof(std::uint64_t)));
  return sum.value();
}

// True when all was read.
bool read_all(int file, std::span<std::byte> bytes, Bytes offset) {
  const ssize_t count = read_at(file, bytes, offset);
  if (count >= 0 && count < std::ssize(bytes)) errno = ENODATA;
  return count == std::ssize(bytes);
}

Bytes size_of(StateFile::Parts parts) {
  Bytes sum = 0;
  for (const auto& part : parts) sum += static_cast<Bytes>(part.size());
  return sum;
}

}  // namespace

// What stands at the begin of a slot's block.
struct StateFile::Entry {
  StateInfo info;
  std::uint64_t data_check = 0;
  std::uint64_t check = 0;

  // A sum of its own; a block of zeros is no entry.
  bool valid(Bytes capacity) const {
    return info.sequence > 0 && info.bytes >= 0 && info.bytes <= capacity &&
           check == check_of(*this);
  }
};

Error StateFile::failure(const std::string& what) const {
  return bad_input("state file " + in_quotes(path_) + ": " + what);
}

Bytes StateFile::data_offset(int slot) const {
  return 3 * kBlock + slot * capacity_;
}

Status StateFile::sync(const Descriptor& file) const {
  if (!options_.durable || ::fdatasync(file.number()) == 0) return {};
  return failure(std::string("cannot be written to the disk: ") + std::strerror(errno));
}

Result<StateFile> StateFile::open(const std::string& path, const Options& options) {
  StateFile state;
  state.path_ = path;
  state.options_ = options;
  const bool writes = options.access == Access::kWrite;
  if (writes) {
    auto lock = FileLock::take(path + ".lock");
    if (!lock.ok() && lock.error().code == ErrorCode::kLimit)
      return state.failure("another process writes it, expected one writer at a time");
    if (!lock.ok()) return state.failure(lock.error().message);
    state.lock_ = std::move(*lock);
  }
  state.file_ = Descriptor(::open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC));
  if (!state.file_.valid()) {
    if (writes && errno == ENOENT) return state;
    return state.failure(std::string("cannot be opened: ") + std::strerror(errno));
  }
  REGEN_TRY(state.check_head());
  REGEN_TRY(state.find_newest());
  return state;
}

Status StateFile::check_head() {
  struct stat facts {};
  if (::fstat(file_.number(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return failure("it is no file, expected one");
  Head head;
  if (!read_all(file_.number(), std::as_writable_bytes(std::span(&head, 1)), 0) ||
      std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) {
    return failure("it is something else, expected a state file that regen has written");
  }
  if (head.version != kVersion) {
    return failure("version " + std::to_string(head.version) + ", expected " +
                   std::to_string(kVersion));
  }
  if (head.check != check_of(head) || head.block != kBlock || head.capacity < 0 ||
      head.capacity > kMaxBytes || head.capacity % kBlock != 0) {
    return failure("its head is damaged");
  }
  capacity_ = head.capacity;
  return {};
}

Result<StateFile::Entry> StateFile::read_entry(int slot) const {
  Entry entry;
  if (!read_all(file_.number(), std::as_writable_bytes(std::span(&entry, 1)), (1 + slot) * kBlock))
    return failure("it ends inside its head");
  return entry;
}

Result<bool> StateFile::is_whole(int slot, const Entry& entry) const {
  Checksum sum;
  std::vector<std::byte> buffer(
      static_cast<std::size_t>(std::min(std::max<Bytes>(entry.info.bytes, 1), options_.chunk)));
  for (Bytes done = 0; done < entry.info.bytes;) {
    const auto bytes = std::span(buffer).first(
        static_cast<std::size_t>(std::min(entry.info.bytes - done, options_.chunk)));
    if (!read_all(file_.number(), bytes, data_offset(slot) + done)) {
      if (errno == ENODATA) return false;  // cut off
      return failure(std::string("cannot be read: ") + std::strerror(errno));
    }
    sum.add(bytes);
    done += static_cast<Bytes>(bytes.size());
  }
  return sum.value() == entry.data_check;
}

Status StateFile::find_newest() {
  Entry entries[2];
  for (int slot : {0, 1}) {
    REGEN_ASSIGN(entries[slot], read_entry(slot));
  }
  const int first = entries[0].info.sequence >= entries[1].info.sequence ? 0 : 1;
  for (const int slot : {first, 1 - first}) {
    if (!entries[slot].valid(capacity_)) continue;
    REGEN_ASSIGN(const bool whole, is_whole(slot, entries[slot]));
    if (!whole) continue;
    slot_ = slot;
    newest_ = entries[slot].info;
    return {};
  }
  // The file got its name with an image in it, and a commit touches one slot only.
  return failure("both of its images are damaged");
}

Status StateFile::commit(std::uint64_t step, Parts parts) {
  if (options_.access != Access::kWrite) return failure("it was opened for reading");
  Entry entry;
  entry.info = {newest_ ? newest_->sequence + 1 : 1, step, size_of(parts)};
  if (!file_.valid() || entry.info.bytes > capacity_) {
    REGEN_TRY(make_anew(entry, parts));
    slot_ = 0;
  } else {
    REGEN_TRY(write_slot(file_, 1 - slot_, entry, parts));
    slot_ = 1 - slot_;
  }
  newest_ = entry.info;
  return {};
}

Status StateFile::write_slot(const Descriptor& file, int slot, Entry entry, Parts parts) const {
  const auto cannot = [&] {
    return failure(std::string("cannot be written: ") + std::strerror(errno));
  };
  const Entry none{.info = {}};
  if (!write_at(file.number(), bytes_of(none), (1 + slot) * kBlock)) return cannot();
  REGEN_TRY(sync(file));  // the old entry is gone before its data are
  Checksum sum;
  Bytes offset = data_offset(slot);
  for (auto part : parts) {
    while (!part.empty()) {
      const auto chunk =
          part.first(std::min(part.size(), static_cast<std::size_t>(options_.chunk)));
      if (!write_at(file.number(), chunk, offset)) return cannot();
      sum.add(chunk);
      offset += static_cast<Bytes>(chunk.size());
      part = part.subspan(chunk.size());
    }
  }
  REGEN_TRY(sync(file));
  entry.data_check = sum.value();
  entry.check = check_of(entry);
  Status status;
  if (!write_at(file.number(), bytes_of(entry), (1 + slot) * kBlock)) status = cannot();
  if (status.ok()) status = sync(file);
  // What failed must not be found by a reader.
  if (!status.ok()) static_cast<void>(write_at(file.number(), bytes_of(none), (1 + slot) * kBlock));
  return status;
}

Status StateFile::make_anew(const Entry& entry, Parts parts) {
  const std::string name = path_ + ".new";  // ours alone, by the lock
  // What a killed writer has left goes; whatever else has that name, a link to another file, is not written to.
  ::unlink(name.c_str());
  Descriptor file(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid())
    return failure(std::string("a new one cannot be made beside it: ") + std::strerror(errno));
  const Bytes before = capacity_;
  capacity_ = (std::max<Bytes>(entry.info.bytes, 1) + kBlock - 1) / kBlock * kBlock;
  Head head{.version = kVersion, .block = kBlock, .capacity = capacity_};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.check = check_of(head);
  Status status;
  const bool begun =
      write_at(file.number(), bytes_of(head), 0) && ::ftruncate(file.number(), data_offset(2)) == 0;
  if (!begun) status = failure(std::string("cannot be written: ") + std::strerror(errno));
  if (status.ok()) status = write_slot(file, 0, entry, parts);
  if (status.ok() && ::rename(name.c_str(), path_.c_str()) != 0)
    status = failure(std::string("the new one cannot take its name: ") + std::strerror(errno));
  if (!status.ok()) {
    ::unlink(name.c_str());
    capacity_ = before;
    return status;
  }
  file_ = std::move(file);
  auto folder = std::filesystem::path(path_).parent_path();
  if (folder.empty()) folder = ".";
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (options_.durable && directory.valid()) static_cast<void>(::fsync(directory.number()));
  return {};
}

Status StateFile::read(Bytes offset, std::span<std::byte> to) const {
  if (!newest_) return failure("it has no image yet");
  const auto bytes = static_cast<Bytes>(to.size());
  if (offset < 0 || bytes > newest_->bytes - offset) {
    return failure("bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) +
                   " of an image of " + std::to_string(newest_->bytes));
  }
  if (!read_all(file_.number(), to, data_offset(slot_) + offset))
    return failure(std::string("cannot be read: ") + std::strerror(errno));
  if (options_.access == Access::kWrite) return {};
  REGEN_ASSIGN(const Entry entry, read_entry(slot_));
  if (entry.info == *newest_) return {};
  return limit_reached("state file " + in_quotes(path_) +
                       ": its writer has gone on meanwhile, expected to be opened again");
}

}  // namespace regen::share
