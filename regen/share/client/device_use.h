// Which process uses a device at this moment, according to the kernel: locks on the bytes of one
// file, one byte for each device. The daemon's orders permit use; the lock states use. It ends with
// the process, however that ends, so that a new daemon and the next holder wait exactly until the
// former holder has ended its quantum.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "regen/base/result.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

// The daemon's side.
class DeviceUseFile {
 public:
  // Made if it is missing, with the permissions of the socket.
  static Result<DeviceUseFile> open(const std::string& path, mode_t mode);

  // For a client, to lock.
  Descriptor share() const;
  // The process that uses the device, if any; 0 when the kernel does not say which.
  std::optional<pid_t> user(std::size_t device) const;

 private:
  std::string path_;
  Descriptor file_;
};

// The client's side.
class DeviceUse {
 public:
  // Of no device: all calls do nothing.
  DeviceUse() = default;
  DeviceUse(Descriptor file, std::size_t device) : file_(std::move(file)), device_(device) {}

  // Sleeps until no other process uses the device.
  void begin() const;
  void end() const;

 private:
  Descriptor file_;
  std::size_t device_ = 0;
};

}  // namespace regen::share
