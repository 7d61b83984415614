#include "regen/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace regen {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPause{2};

}  // namespace

FolderLock::FolderLock(const std::string& folder, double patience) {
  const char* name = folder.empty() ? "." : folder.c_str();
  const int opened = ::open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0) return;
  const auto end = Clock::now() + std::chrono::duration<double>(patience);
  while (::flock(opened, LOCK_EX | LOCK_NB) != 0) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || Clock::now() >= end) {
      ::close(opened);
      return;
    }
    std::this_thread::sleep_for(kPause);
  }
  folder_ = opened;
}

void FolderLock::release() {
  if (!held()) return;
  ::flock(folder_, LOCK_UN);  // closing is not enough if a child was forked meanwhile
  ::close(folder_);
  folder_ = -1;
}

}  // namespace regen
