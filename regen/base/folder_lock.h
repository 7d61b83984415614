// A folder that one process, and one thread of it, changes at a time: for files that are read,
// added to and written again.
#pragma once

#include <string>

namespace regen {

// The folder itself is locked: no file is left in it, and a killed process releases the lock.
//
// The lock is advisory. After `patience` seconds, and where there is no folder or no lock, the
// caller goes on without it: the process that holds it is stopped or is not regen. So work under
// the lock must leave whole files in any case. On a network file system, processes of other
// machines are not excluded.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder, double patience = 10);  // "": the current one
  ~FolderLock() { release(); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool held() const { return folder_ >= 0; }
  void release();

 private:
  int folder_ = -1;
};

}  // namespace regen
