#include "regen/base/file_bytes.h"

#include <unistd.h>

#include <cerrno>

namespace regen {

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

}  // namespace regen
