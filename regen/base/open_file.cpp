#include "regen/base/open_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>

namespace regen {
namespace {

int write_and_sync(OpenFile& file, std::string_view content) {
  if (const int error = write_all(file, content)) return error;
  if (::fsync(file.get()) != 0) return errno;
  return file.close();
}

std::uint64_t random_bits() {
  try {
    std::random_device device;
    return (std::uint64_t{device()} << 32) ^ device();
  } catch (const std::exception&) {  // no such device here: the clock and the process must do
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) ^
           (static_cast<std::uint64_t>(::getpid()) << 40);
  }
}

}  // namespace

int OpenFile::close() {
  if (descriptor_ < 0) return 0;
  // Not again after EINTR: Linux has released the number.
  return ::close(std::exchange(descriptor_, -1)) == 0 || errno == EINTR ? 0 : errno;
}

int read_all(const OpenFile& file, std::size_t max_bytes, std::string& content) {
  content.clear();
  std::string buffer(std::size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno;
    if (got == 0) return 0;
    content.append(buffer, 0, static_cast<std::size_t>(got));
    if (content.size() > max_bytes) return EFBIG;
  }
}

int write_all(const OpenFile& file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t put = ::write(file.get(), content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    if (put == 0) return ENOSPC;
    content.remove_prefix(static_cast<std::size_t>(put));
  }
  return 0;
}

ssize_t read_at(int file, std::span<std::byte> bytes, off_t offset) {
  ssize_t whole = 0;
  while (!bytes.empty()) {
    const ssize_t done = ::pread(file, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return -1;
    if (done == 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
    whole += done;
  }
  return whole;
}

bool write_at(int file, std::span<const std::byte> bytes, off_t offset) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(file, bytes.data(), bytes.size(), offset);
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = ENOSPC;
    if (done <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
  return true;
}

int replace_file(int folder, const std::string& temporary, const std::string& name,
                 std::string_view content, mode_t mode) {
  constexpr int kNew = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  OpenFile file(::openat(folder, temporary.c_str(), kNew, mode));
  if (!file) return errno;
  int error = write_and_sync(file, content);
  if (error == 0 && ::renameat(folder, temporary.c_str(), folder, name.c_str()) != 0) error = errno;
  if (error != 0) ::unlinkat(folder, temporary.c_str(), 0);
  return error;
}

std::string unique_digits() {
  // Drawn anew each time: a forked child has its parent's memory, and in a container of its own perhaps
  // the number of another child. The counter tells names apart where no bits can be drawn.
  static std::atomic<std::uint64_t> counter{0};
  const std::uint64_t own = random_bits() ^ counter.fetch_add(1);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(own));
  return text;
}

}  // namespace regen
