#include "regen/share/client/device_use.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

namespace regen::share {
namespace {

// Locks of this kind are a process's own: children do not inherit them, and no other process can
// drop them.
int lock_byte(const Descriptor& file, std::int64_t byte, short type, int command) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(byte);
  lock.l_len = 1;
  return ::fcntl(file.number(), command, &lock);
}

}  // namespace

DeviceUse::DeviceUse(Descriptor file, std::size_t device)
    : file_(std::move(file)), device_(device) {
  if (file_.valid()) lock_byte(file_, kLifeByte, F_WRLCK, F_SETLK);
}

void DeviceUse::begin() const {
  if (!file_.valid()) return;
  while (lock_byte(file_, static_cast<std::int64_t>(device_), F_WRLCK, F_SETLKW) != 0 &&
         errno == EINTR) {
  }
}

void DeviceUse::end() const {
  if (file_.valid()) lock_byte(file_, static_cast<std::int64_t>(device_), F_UNLCK, F_SETLK);
}

}  // namespace regen::share
