// A job's statement to the kernel that it uses its device at this moment: a lock in a file of its own, which the daemon made for it. The
// daemon's orders permit use; the lock states use. It ends with the process, however that ends, so that the daemon, or the next one, waits
// exactly until the former holder has ended its quantum. A second lock states that the job lives; it is held for as long.
#pragma once

#include <cstddef>
#include <cstdint>

#include "regen/base/result.h"
#include "regen/share/protocol/page.h"

namespace regen::share {

// The byte that is locked while the job lives; those before it are devices.
inline constexpr std::int64_t kLifeByte = std::int64_t{1} << 32;

class DeviceUse {
 public:
  // Of no device: all calls do nothing.
  DeviceUse() = default;
  // From now on the job lives, and uses nothing. An error where the system gives no lock.
  static Result<DeviceUse> of(Descriptor file, std::size_t device);

  // Sleeps until no other process uses the device. After an error it is not used.
  Status begin() const;
  void end() const;

 private:
  DeviceUse(Descriptor file, std::size_t device);

  Descriptor file_;
  std::size_t device_ = 0;
};

}  // namespace regen::share
