// A lock file that one process holds at a time, until it releases it or ends, however it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "regen/base/result.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

// fork() does not pass it on: children that outlive a killed parent (workers of a data loader) do
// not keep the lock.
class FileLock {
 public:
  // Makes the file if it is missing. An error of code kLimit if a process holds it, this one
  // included.
  static Result<FileLock> take(const std::string& path);
  // The process that holds it; 0 when none does, or when the kernel does not report it.
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
