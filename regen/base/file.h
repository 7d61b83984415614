// Whole files in and out. A written file appears complete or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "regen/base/result.h"

namespace regen {

// Refuses directories and files over `max_bytes`.
Result<std::string> read_file(const std::string& path,
                              std::size_t max_bytes = std::size_t{1} << 31);

// Exactly `bytes` bytes from `offset` on.
Result<std::string> read_file_part(const std::string& path, std::int64_t offset,
                                   std::int64_t bytes);

// Writes beside the target and renames over it, so a failure leaves the old
// file (or none); "-" writes to standard output.
Status write_file(const std::string& path, std::string_view content);

// A fresh path in the folder of `path` with the same extension, for programs that write
// the file themselves; give the finished file to rename_file.
std::string temporary_beside(const std::string& path);
Status rename_file(const std::string& from, const std::string& to);

}  // namespace regen
