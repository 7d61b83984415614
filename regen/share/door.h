// The socket file as the only way to the daemon: one daemon for each path, and nobody whom the
// file's permissions keep out.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>

#include "regen/base/result.h"
#include "regen/share/page.h"

namespace regen::share {

class Door {
 public:
  // Listens at `path`. A socket that a dead daemon left there is replaced; a path that another
  // daemon serves, or that is no socket, is refused. The folder is made if it is missing, for this
  // user only. Beside the socket stays PATH.lock: whoever has it locked is the daemon.
  static Result<Door> open(const std::string& path, mode_t mode, int type = SOCK_STREAM);
  Door(Door&&) noexcept = default;
  ~Door();

  int listener() const { return listener_.number(); }

 private:
  Door() = default;

  std::string path_;
  Descriptor lock_;
  Descriptor listener_;
};

}  // namespace regen::share
