#include "regen/share/file_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

namespace regen::share {
namespace {

// The kernel's lock belongs to the process, so it does not keep two owners inside apart. By file:
// the process that has it, which is another one after a fork.
struct Owners {
  std::mutex mutex;
  std::map<std::pair<unsigned long, unsigned long>, pid_t> process;
};

Owners& owners() {
  static auto* all = new Owners;
  return *all;
}

Error lock_error(const std::string& path, const char* what) {
  return bad_input("lock '" + path + "': " + what + ": " + std::strerror(errno));
}

}  // namespace

Result<FileLock> FileLock::take(const std::string& path) {
  const Error taken = limit_reached("lock '" + path + "': another process or object has it");
  struct stat facts {};
  Owners& all = owners();
  const std::lock_guard guard(all.mutex);
  // To open and close a file that this process has locked would unlock it.
  if (::stat(path.c_str(), &facts) == 0) {
    const auto found = all.process.find({facts.st_dev, facts.st_ino});
    if (found != all.process.end() && found->second == ::getpid()) return taken;
  }
  FileLock lock;
  lock.file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock.file_.valid() || ::fstat(lock.file_.number(), &facts) != 0)
    return lock_error(path, "cannot be opened");
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(lock.file_.number(), F_SETLK, &whole) != 0) {
    lock.file_ = Descriptor();
    if (errno == EAGAIN || errno == EACCES) return taken;
    return lock_error(path, "cannot be taken");
  }
  lock.key_ = {facts.st_dev, facts.st_ino};
  all.process[lock.key_] = ::getpid();
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : file_(std::move(other.file_)), key_(other.key_) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(key_, other.key_);
  return *this;
}

FileLock::~FileLock() {
  if (!file_.valid()) return;
  Owners& all = owners();
  const std::lock_guard guard(all.mutex);
  const auto found = all.process.find(key_);
  if (found != all.process.end() && found->second == ::getpid()) all.process.erase(found);
}

}  // namespace regen::share
