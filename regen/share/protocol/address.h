// Where the daemon's socket is.
#pragma once

#include <sys/un.h>

#include <string>

#include "regen/base/result.h"

namespace regen::share {

// REGEN_SHARE_SOCKET, else regen/share.sock in XDG_RUNTIME_DIR, else /tmp/regen-UID/share.sock.
std::string default_socket();

// Whether it is the path that is looked at where none is given. Another user may have come first there.
bool is_fallback_socket(const std::string& path);

// Refuses a path that the kernel's address cannot hold.
Result<sockaddr_un> socket_address(const std::string& path);

}  // namespace regen::share
