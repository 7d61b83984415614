// Where the daemon's socket is.
#pragma once

#include <sys/un.h>

#include <string>

#include "regen/base/result.h"

namespace regen::share {

// REGEN_SHARE_SOCKET, else regen/share.sock in XDG_RUNTIME_DIR, else /tmp/regen-UID/share.sock.
std::string default_socket();

// Refuses a path that the kernel's address cannot hold.
Result<sockaddr_un> socket_address(const std::string& path);

}  // namespace regen::share
