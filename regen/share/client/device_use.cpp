#include "regen/share/client/device_use.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
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

Status locked(const Descriptor& file, std::int64_t byte, int command) {
  while (lock_byte(file, byte, F_WRLCK, command) != 0) {
    if (errno == EINTR) continue;
    return limit_reached(std::string("cannot lock the file of a job's device use: ") +
                         std::strerror(errno));
  }
  return {};
}

}  // namespace

DeviceUse::DeviceUse(Descriptor file, std::size_t device)
    : file_(std::move(file)), device_(device) {}

Result<DeviceUse> DeviceUse::of(Descriptor file, std::size_t device) {
  DeviceUse use(std::move(file), device);
  if (use.file_.valid()) REGEN_TRY(locked(use.file_, kLifeByte, F_SETLK));
  return use;
}

Status DeviceUse::begin() const {
  if (!file_.valid()) return {};
  return locked(file_, static_cast<std::int64_t>(device_), F_SETLKW);
}

void DeviceUse::end() const {
  if (file_.valid()) lock_byte(file_, static_cast<std::int64_t>(device_), F_UNLCK, F_SETLK);
}

}  // namespace regen::share
