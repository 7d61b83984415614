#include "regen/share/client/device_use.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "regen/base/text.h"

namespace regen::share {
namespace {

// Locks of this kind are a process's own: children do not inherit them, and no other process can
// drop them.
struct flock lock_of(short type, std::size_t device) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(device);
  lock.l_len = 1;
  return lock;
}

}  // namespace

Result<DeviceUseFile> DeviceUseFile::open(const std::string& path, mode_t mode) {
  DeviceUseFile result;
  result.path_ = path;
  result.file_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!result.file_.valid() || ::fchmod(result.file_.number(), mode) != 0) {
    return bad_input("cannot use " + in_quotes(path) + ": " + std::strerror(errno) +
                     ", expected a file of this user");
  }
  return result;
}

Descriptor DeviceUseFile::share() const {
  return Descriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
}

std::optional<pid_t> DeviceUseFile::user(std::size_t device) const {
  struct flock lock = lock_of(F_WRLCK, device);
  if (::fcntl(file_.number(), F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return std::nullopt;
  return lock.l_pid;
}

void DeviceUse::begin() const {
  if (!file_.valid()) return;
  struct flock lock = lock_of(F_WRLCK, device_);
  while (::fcntl(file_.number(), F_SETLKW, &lock) != 0 && errno == EINTR) {
  }
}

void DeviceUse::end() const {
  if (!file_.valid()) return;
  struct flock lock = lock_of(F_UNLCK, device_);
  ::fcntl(file_.number(), F_SETLK, &lock);
}

}  // namespace regen::share
