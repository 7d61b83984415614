// A folder that one process, and one thread of it, changes at a time: for files that are read,
// added to and written again.
#pragma once

#include <string>

namespace regen {

// The folder itself is locked, so nothing is left in it, and whoever is killed has let go of it.
//
// Only those who ask are kept out, and nobody for ever: one who has had it for `patience` seconds
// is stopped or not one of us. Then, and where there is no folder or no lock to be had, this goes
// on without; so what is done under it must leave whole files anyway. On a network file system,
// processes of other machines are not kept out.
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
