// A file or folder that is open, closed with the object; and what is done with it as a whole.
#pragma once

#include <fcntl.h>
#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace regen {

class OpenFile {
 public:
  OpenFile() = default;
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  OpenFile(OpenFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  OpenFile& operator=(OpenFile&& other) noexcept {
    if (this != &other) {
      close();
      descriptor_ = std::exchange(other.descriptor_, -1);
    }
    return *this;
  }
  ~OpenFile() { close(); }

  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  // 0, or the number of the error: what was written may be lost only now (NFS, quotas).
  int close();

 private:
  int descriptor_ = -1;
};

// The functions below return 0 or the number of the error (errno).

// From where the file stands to its end. EFBIG: it has more than `max_bytes`.
int read_all(const OpenFile& file, std::size_t max_bytes, std::string& content);
int write_all(const OpenFile& file, std::string_view content);

// Bytes at a place of a file, all of them: short reads and writes are continued, and signals change nothing.
// How many are there, less than asked for at the end of the file; -1: an error, in errno.
ssize_t read_at(int file, std::span<std::byte> bytes, off_t offset);
// False: an error, in errno. Some may have been written.
bool write_at(int file, std::span<const std::byte> bytes, off_t offset);

// A file appears complete under `name` in the folder, or not at all: also after a crash of the
// machine. `temporary` is the name that it has until then; nothing is left of it after an error.
int replace_file(int folder, const std::string& temporary, const std::string& name,
                 std::string_view content, mode_t mode);

// Sixteen hexadecimal digits that no other process has, on this machine or another.
std::string unique_digits();

}  // namespace regen
