// Bytes at a place of a file, all of them: short reads and writes are continued, and signals change nothing.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>

namespace regen {

// How many are there, less than asked for at the end of the file; -1: an error, in errno.
ssize_t read_at(int file, std::span<std::byte> bytes, off_t offset);
// False: an error, in errno. Some may have been written.
bool write_at(int file, std::span<const std::byte> bytes, off_t offset);

}  // namespace regen
