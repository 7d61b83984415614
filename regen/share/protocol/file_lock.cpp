#include "regen/share/protocol/file_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

namespace regen::share {
namespace {

// The kernel's lock belongs to the process, so it does not keep two owners inside apart. By file:
// the process that has it, which is another one after a fork.
struct Owners {
  std::mutex mutex;
  std::map<std::pair<unsigned long, unsigned long>, pid_t> process;

  // Of this process; the file may not be opened and closed then: that would unlock it. Nothing where
  // that cannot be known, with the error in errno.
  std::optional<bool> here(const std::string& path) const {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0)
      return errno == ENOENT ? std::optional(false) : std::nullopt;
    const auto found = process.find({facts.st_dev, facts.st_ino});
    return found != process.end() && found->second == ::getpid();
  }
};

Owners& owners() {
  static Owners* all = [] {
    // A child of fork() locks files, too: no other thread may be in here at that moment.
    ::pthread_atfork([] { owners().mutex.lock(); }, [] { owners().mutex.unlock(); },
                     [] { owners().mutex.unlock(); });
    return new Owners;
  }();
  return *all;
}

struct flock whole_file() {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return whole;
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
  const std::optional<bool> here = all.here(path);
  if (!here) return lock_error(path, "cannot be looked at");
  if (*here) return taken;
  FileLock lock;
  lock.file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.file_.valid()) return lock_error(path, "cannot be opened");
  struct flock whole = whole_file();
  if (::fstat(lock.file_.number(), &facts) != 0 ||
      ::fcntl(lock.file_.number(), F_SETLK, &whole) != 0) {
    const Error error =
        errno == EAGAIN || errno == EACCES ? taken : lock_error(path, "cannot be taken");
    lock.file_ = Descriptor();
    return error;
  }
  lock.key_ = {facts.st_dev, facts.st_ino};
  all.process[lock.key_] = ::getpid();
  return lock;
}

pid_t FileLock::owner(const std::string& path) {
  Owners& all = owners();
  const std::lock_guard guard(all.mutex);
  const std::optional<bool> here = all.here(path);
  if (!here || *here) return here ? ::getpid() : 0;
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock whole = whole_file();
  const bool known = file.valid() && ::fcntl(file.number(), F_GETLK, &whole) == 0;
  return known && whole.l_type != F_UNLCK && whole.l_pid > 0 ? whole.l_pid : 0;
}

FileLock::FileLock(FileLock&& other) noexcept {
  *this = std::move(other);
}

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
  file_ = Descriptor();  // before another thread may take it: the kernel would unlock its lock
}

}  // namespace regen::share
