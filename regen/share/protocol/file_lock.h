// A file that one process has at a time, until it lets go of it or ends, however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "regen/base/result.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

// Not handed on by fork(): children that outlive a killed parent (workers of a data loader) do not
// keep what was the parent's.
class FileLock {
 public:
  // Makes the file if it is not there. An error of code kLimit if somebody has it, this process
  // included.
  static Result<FileLock> take(const std::string& path);
  // The process that has it; 0 when nobody has, or the kernel does not say who.
  static pid_t owner(const std::string& path);
  FileLock() = default;
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  using Key = std::pair<unsigned long, unsigned long>;  // device and inode

  Descriptor file_;
  Key key_;
};

}  // namespace regen::share
